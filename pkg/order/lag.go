package order

import (
	"context"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/prometheus/client_golang/prometheus"
)

// StreamInfo is what a Lag needs of JetStream.
type StreamInfo interface {
	Info(ctx context.Context) (stream.Status, error)
}

// lagEvery is how often the lag is looked at: a few times per scrape.
const lagEvery = 5 * time.Second

// Lag tells the metrics how many messages of the stream are not written yet. It
// believes the ledger, not the consumer: what was lost after its acknowledgement lags, too.
type Lag struct {
	ledger Progress
	stream StreamInfo
	gauge  prometheus.Gauge
}

// NewLag returns a Lag that sets the gauge.
func NewLag(l Progress, s StreamInfo, gauge prometheus.Gauge) *Lag {
	return &Lag{ledger: l, stream: s, gauge: gauge}
}

// Run looks at the lag until ctx ends. While stream or ledger is away the gauge keeps
// what it was; the readiness probe tells of the outage.
func (l *Lag) Run(ctx context.Context) error {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	for {
		if n, err := l.runOnce(ctx); err == nil {
			l.gauge.Set(float64(n))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// runOnce counts the sequences of the stream beyond those that are written without a gap.
func (l *Lag) runOnce(ctx context.Context) (uint64, error) {
	status, err := l.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at the lag of the order workers: %w", err)
	}
	written, err := l.ledger.Progress(ctx, status.StreamID)
	if err != nil {
		return 0, fmt.Errorf("look at the lag of the order workers: %w", err)
	}
	floor, _ := ledger.Floor(written, max(status.FirstSeq, 1))
	return max(status.LastSeq, floor) - floor, nil
}
