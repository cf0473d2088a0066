package reconcile

import (
	"log/slog"
	"slices"
	"time"

	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
	"github.com/prometheus/client_golang/prometheus"
)

// Service is the reconciler role. It has no HTTP of its own: requests come over
// the stream's connection.
type Service struct {
	*Reconciler
}

// ServiceConfig is what a Service is made of.
type ServiceConfig struct {
	Tuning   config.ReconcileTuning
	Ledger   *ledger.Ledger
	Stock    *stock.Store
	Stream   *stream.Stream
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// NewService returns a Service that has not begun.
func NewService(cfg ServiceConfig) (*Service, error) {
	reasons := append(slices.Clone(stock.Reasons), ReasonForced, ReasonDrift, ReasonAudit, ReasonApprove, ReasonOperator, ReasonStock, reasonOther)
	metrics := telemetry.NewReconcileMetrics(cfg.Registry, texts(Results), reasons, texts(Steps), DriftKinds)
	r, err := New(Config{
		AuditInterval: cfg.Tuning.AuditInterval, RelayInterval: cfg.Tuning.RelayInterval,
		LeaseTTL: cfg.Tuning.LeaseTTL, Chunk: cfg.Tuning.Chunk,
	}, cfg.Stock, cfg.Stream, cfg.Ledger, meter{metrics, reasons}, cfg.Log)
	if err != nil {
		return nil, err
	}
	return &Service{r}, nil
}

// Mount registers nothing.
func (s *Service) Mount(*web.Router) {}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// reasonOther stands in the metrics for what callers made up.
const reasonOther = "other"

// meter counts what a reconciler does in the metrics.
type meter struct {
	m       *telemetry.ReconcileMetrics
	reasons []string
}

func (o meter) Run(result Result, reason string, took time.Duration) {
	if !slices.Contains(o.reasons, reason) {
		reason = reasonOther
	}
	o.m.Runs(string(result), reason).Inc()
	o.m.Seconds.Observe(took.Seconds())
}

func (o meter) Step(step Step, took time.Duration) {
	o.m.StepSeconds.WithLabelValues(string(step)).Observe(took.Seconds())
}

func (o meter) Drift(kind string)      { o.m.Drift.Of(kind).Inc() }
func (o meter) RestoredGrants(n int64) { o.m.RestoredGrants.Add(float64(n)) }
func (o meter) Relayed(n int64)        { o.m.Relayed.Add(float64(n)) }
