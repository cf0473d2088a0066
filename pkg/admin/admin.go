// Package admin is the control plane: it creates sales, moves them through
// their lives, adjusts their stock, and shows the books.
//
// What an operator decides is written in this order:
//
//	ledger (the truth, one revision more) ─▶ catalogue (what the grab nodes see) ─▶ Redis, by a reconciler
//
// A crash in between leaves the later places behind. The publisher brings the
// catalogue up to the ledger, at the start and on a schedule; a sale that is not
// loaded is loaded by whoever notices. Every request may be repeated.
//
// The files: sale.go, draft.go, change.go and lifecycle.go are sales, view.go how
// they are shown; quota.go is quotas; adjust.go is their stock; order.go, pay.go, return.go, flow.go, deadletter.go and
// report.go are the books; publisher.go is the schedule; service.go is all of it
// as one role of a process.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Ledger is what the API needs of MySQL. A *ledger.Ledger has it.
type Ledger interface {
	SaleLedger
	StockLedger
	Books
	Deliveries
	// Permanent reports whether an error blames the data.
	Permanent(err error) bool
}

// SaleLedger holds the sales.
type SaleLedger interface {
	CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, error)
	EditSale(ctx context.Context, id string, by ledger.Cause, edit func(*sale.Sale) error) (sale.Sale, error)
	EditDraft(ctx context.Context, id string, edit func(*sale.Sale) error) (sale.Sale, error)
	GetSale(ctx context.Context, id string) (sale.Sale, error)
	ListSales(ctx context.Context, after string, limit int) ([]sale.Sale, error)
	ListQuotas(ctx context.Context, after string, limit int) ([]sale.Sale, error)
	Used(ctx context.Context, saleID, limit, period, subject string) (int64, error)
}

// StockLedger holds the items' counts and how they were adjusted.
type StockLedger interface {
	ItemCounts(ctx context.Context, saleIDs []string) (map[string][]ledger.ItemTotals, error)
	AdjustUp(ctx context.Context, a ledger.Adjustment) (ledger.Adjusted, error)
	AdjustmentRecord(ctx context.Context, saleID, sku, ref string) (ledger.AdjustmentRecord, error)
	StockSet(ctx context.Context, saleID, sku, ref string) (ledger.StockSet, error)
}

// Books holds what was sold, and what could not be written.
type Books interface {
	ListChanges(ctx context.Context, saleID string, after int64, limit int) ([]ledger.Change, error)
	ListFlows(ctx context.Context, q ledger.FlowQuery) ([]sale.Flow, error)
	GetOrder(ctx context.Context, orderID string) (sale.Order, error)
	ListOrders(ctx context.Context, q ledger.OrderQuery) ([]sale.Order, error)
	Cancel(ctx context.Context, orderID, actor, reason string) (sale.Order, sale.Giveback, error)
	Pay(ctx context.Context, orderID string) (sale.Order, error)
	Return(ctx context.Context, r ledger.Return) (sale.Order, sale.Giveback, error)
	GetDead(ctx context.Context, saleID, orderID string) (ledger.DeadLetter, error)
}

// Stock is what the API needs of Redis. A *stock.Store has it.
type Stock interface {
	State(ctx context.Context, saleID string, skus []string) (stock.State, error)
	Used(ctx context.Context, saleID, limit, period string, visit func(subject string, units int64) error) error
	Find(ctx context.Context, saleID, orderID string) (f stock.Found, ok bool, err error)
}

// Stream is what the API needs of NATS. A *stream.Stream has it.
type Stream interface {
	FlowControls
	// PutSale shows a sale to the grab nodes. An older revision changes nothing.
	PutSale(ctx context.Context, s *sale.Sale) error
	// AskReconcile has a reconciler load or check a sale; the reply is its report.
	AskReconcile(ctx context.Context, saleID, reason string) ([]byte, error)
}

// Engine takes stock the way a grab does. A *grab.Engine has it.
type Engine interface {
	Put(s *sale.Sale)
	Sale(saleID string) (*sale.Sale, bool)
	Take(ctx context.Context, a grab.Adjustment) (grab.Answer, error)
}

// Givebacks gives stock that the ledger has decided to come back to Redis.
type Givebacks interface {
	Return(ctx context.Context, g sale.Giveback) error
}

// DeadLetters is what can be done about grants that could not become orders.
type DeadLetters interface {
	List(ctx context.Context, saleID, after string, limit int) ([]ledger.DeadLetter, error)
	Replay(ctx context.Context, saleID, orderID string) (ledger.Result, error)
	Cancel(ctx context.Context, saleID, orderID, actor, reason string) error
}

// Verifier checks every guarantee for a sale. A *reconcile.Reconciler has it.
type Verifier interface {
	Verify(ctx context.Context, saleID string) (reconcile.Verification, error)
}

// Restocker changes stock from and to unlimited. A *reconcile.Reconciler has it.
type Restocker interface {
	SetStock(ctx context.Context, c ledger.StockChange) (ledger.StockSet, error)
}

// Parts is what an API is made of. All are required.
type Parts struct {
	Ledger      Ledger
	Stock       Stock
	Stream      Stream
	Engine      Engine
	Givebacks   Givebacks
	DeadLetters DeadLetters
	Verifier    Verifier
	Restocker   Restocker
	Log         *slog.Logger
}

// Config bounds the API. The zero value of a field means its default.
type Config struct {
	// Callers are those who may call: by the bearer key that they send, the name that the
	// books give them. One is required.
	Callers          map[string]string
	StateTimeout     time.Duration // one look into Redis; default 1s
	LoadTimeout      time.Duration // how long an approval waits for the sale to be loaded; default 5s
	TakeTimeout      time.Duration // taking stock from Redis, all attempts; default 5s
	TakeAttempts     int           // to take what is left while others grab; default 16
	RecordTimeout    time.Duration // how long an adjustment waits for the ledger to have it; default 5s
	GivebackTimeout  time.Duration // giving stock back before the answer, the relay does it later otherwise; default 1s
	ReconcileTimeout time.Duration // a reconcile; default 60s
	VerifyTimeout    time.Duration // a verification; default 60s
	PublishInterval  time.Duration // between two comparisons of the catalogue with the ledger; default 15s
}

func (c Config) withDefaults() (Config, error) {
	if c.TakeAttempts == 0 {
		c.TakeAttempts = 16
	}
	if len(c.Callers) == 0 {
		return c, errors.New("admin: a key is required")
	}
	if c.TakeAttempts < 1 || c.TakeAttempts > 1000 {
		return c, errors.New("admin: TakeAttempts must be 1 to 1000")
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"StateTimeout", &c.StateTimeout, time.Second},
		{"LoadTimeout", &c.LoadTimeout, 5 * time.Second},
		{"TakeTimeout", &c.TakeTimeout, 5 * time.Second},
		{"RecordTimeout", &c.RecordTimeout, 5 * time.Second},
		{"GivebackTimeout", &c.GivebackTimeout, time.Second},
		{"ReconcileTimeout", &c.ReconcileTimeout, time.Minute},
		{"VerifyTimeout", &c.VerifyTimeout, time.Minute},
		{"PublishInterval", &c.PublishInterval, 15 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if *d.value < 0 || *d.value > maxTimeout {
			return c, fmt.Errorf("admin: %s must be positive and at most %s", d.name, maxTimeout)
		}
	}
	return c, nil
}

// maxTimeout keeps every answer within the server's limit for writing one.
const maxTimeout = 75 * time.Second

// actor is who the books say it was.
func actor(r *http.Request) string { return web.Caller(r.Context()) }

// API answers operators.
type API struct {
	Parts
	cfg Config
}

// New returns the API.
func New(cfg Config, parts Parts) (*API, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &API{Parts: parts, cfg: cfg}, nil
}
