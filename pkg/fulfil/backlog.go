package fulfil

import (
	"context"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/prometheus/client_golang/prometheus"
)

// Deliveries is what a Backlog needs of the ledger.
type Deliveries interface {
	// CountDeliveries returns how many deliveries are in a state.
	CountDeliveries(ctx context.Context, status ledger.DeliveryStatus) (int64, error)
}

// backlogEvery is how often deliveries are counted: about once per scrape.
const backlogEvery = 15 * time.Second

// Backlog tells the metrics how many deliveries wait for their shop and how many for
// an operator, those of other processes and of a process without secrets, too.
type Backlog struct {
	ledger Deliveries
	gauges map[ledger.DeliveryStatus]prometheus.Gauge
}

// NewBacklog returns a Backlog that sets the gauges.
func NewBacklog(l Deliveries, waiting, parked prometheus.Gauge) *Backlog {
	return &Backlog{
		ledger: l,
		gauges: map[ledger.DeliveryStatus]prometheus.Gauge{ledger.DeliveryWaiting: waiting, ledger.DeliveryParked: parked},
	}
}

// Run counts until ctx ends. While the ledger is away the gauges keep what they were;
// the readiness probe tells of the outage.
func (b *Backlog) Run(ctx context.Context) error {
	tick := time.NewTicker(backlogEvery)
	defer tick.Stop()
	for {
		for status, gauge := range b.gauges {
			if n, err := b.ledger.CountDeliveries(ctx, status); err == nil {
				gauge.Set(float64(n))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
