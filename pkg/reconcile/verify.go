package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// Verification is what a look at every guarantee found. While the sale moves, only
// what must hold at every moment is judged.
type Verification struct {
	SaleID   string        `json:"sale_id"`
	At       time.Time     `json:"at"`
	Duration sale.Duration `json:"duration"`
	OK       bool          `json:"ok"` // no check failed
	AtRest   bool          `json:"at_rest"`
	Moving   []string      `json:"moving,omitempty"` // what is still under way, for people
	Loaded   bool          `json:"loaded"`
	Why      string        `json:"why_not_loaded,omitempty"`
	Checks   []Check       `json:"checks"`
}

// Check is one promise, looked at.
type Check struct {
	Name      string `json:"name"`
	Guarantee int    `json:"guarantee"` // its number in docs/architecture.md
	OK        bool   `json:"ok"`
	// Informational checks tell something worth knowing; they are always OK.
	Informational bool             `json:"informational,omitempty"`
	Detail        string           `json:"detail,omitempty"`
	Numbers       map[string]int64 `json:"numbers,omitempty"`
}

// The guarantees that checks belong to; see docs/architecture.md.
const (
	guaranteeNoOversell = 1
	guaranteeLimits     = 2
	guaranteeOneOrder   = 3
	guaranteeOneKey     = 4
	guaranteeReturns    = 5
	guaranteeAtRest     = 6
	guaranteeRecovery   = 7
)

// ledgerGuarantees says which guarantee a check of the ledger belongs to.
var ledgerGuarantees = map[string]int{
	"sold_within_stock": guaranteeNoOversell, "items_equal_orders": guaranteeNoOversell, "items_equal_flows": guaranteeNoOversell,
	"flows_chain": guaranteeNoOversell, "flows_end_at_stock": guaranteeNoOversell,
	"per_user_limit": guaranteeLimits, "limits": guaranteeLimits, "counters_equal_flows": guaranteeLimits, "counters_equal_orders": guaranteeLimits,
	"orders_have_flows": guaranteeOneOrder, "flows_have_orders": guaranteeOneOrder, "orders_expire": guaranteeOneOrder,
	"returned_equals_flows": guaranteeReturns, "flows_have_givebacks": guaranteeReturns, "givebacks_have_flows": guaranteeReturns,
}

// mark says where an order id was found.
type mark uint8

const (
	inStream  mark = 1 << iota
	inWritten      // in a message of the stream that the ledger has written
	inOrders
	inLedger // in the ledger otherwise: a dead letter, an adjustment
	inFold   // Redis must have it at rest
	inRedis
)

// verification is one call of Verify.
type verification struct {
	*Reconciler
	sale    sale.Sale
	out     Verification
	marks   map[string]mark // by order id
	floor   uint64
	books   Folded
	redis   redisSide
	trusted bool // see floorOf
	// oldest is the generation of the sale's first batch in the stream, or of its
	// last fence when there is none. Orders of earlier generations are older than the
	// stream, or were purged from it; those of oldest itself only if it was purged.
	oldest      int64
	batches     int
	purged      bool
	unwritten   Violations // messages that are settled and not written
	adjusts     int64      // grants of the stream that are adjustments
	orders      int64
	oldOrders   int64      // orders whose grants the stream can't have any more
	strayOrders Violations // orders without a grant
	badKeys     Violations // orders that their idempotency key does not name
	deadLetters int64
}

// redisSide is what Redis holds, counted where it must be compared one by one.
type redisSide struct {
	state      stock.State
	buyers     Violations       // users who were granted something in Redis only, or in the books only
	holdings   Violations       // users who hold another number of units than in the books
	topHolding stock.Holding    // of the user who holds the most units
	topCounts  map[string]int64 // the highest count of each limit, by its name
	overLimit  Violations
	counts     Violations // counters that differ from the books
	givebacks  Violations
	grants     int64
	userCount  int64
	countCount int64
	backsCount int64
}

// Verify checks every guarantee of one sale over Redis, stream and ledger. It
// reads all of the sale, and keeps about 150 bytes per grant and 200 per user
// while it does. A broken guarantee is a finding, not an error.
func (r *Reconciler) Verify(ctx context.Context, saleID string) (Verification, error) {
	v := &verification{Reconciler: r, marks: make(map[string]mark), out: Verification{SaleID: saleID, At: r.now().UTC()}}
	if err := v.do(ctx); err != nil {
		return Verification{}, fmt.Errorf("verify sale %s: %w", saleID, err)
	}
	v.out.OK = true
	for _, c := range v.out.Checks {
		v.out.OK = v.out.OK && c.OK
	}
	v.out.Duration = sale.Duration(r.now().Sub(v.out.At))
	return v.out, nil
}

// do looks in the order that rest.go asks for.
func (v *verification) do(ctx context.Context) (err error) {
	if v.sale, err = v.ledger.GetSale(ctx, v.out.SaleID); err != nil {
		return err
	}
	found, state, err := v.probe(ctx, &v.sale)
	if err != nil {
		return err
	}
	v.out.Loaded, v.out.Why, v.redis.state, v.oldest = found.Loaded, found.Why, state, found.LastGeneration
	at, err := v.takeRestPoint(ctx, v.sale.ID)
	if err != nil {
		return err
	}
	if err := v.readLedgerAndStream(ctx, at); err != nil {
		return err
	}
	if err := v.findUnwritten(ctx, at.stream); err != nil {
		return err
	}
	if v.out.Moving, err = v.moving(ctx, v.sale.ID, at, v.floor); err != nil {
		return err
	}
	if v.out.Loaded {
		if err := v.readRedis(ctx); err != nil {
			return err
		}
		if err := v.compareLimits(ctx); err != nil {
			return err
		}
	}
	v.out.AtRest = len(v.out.Moving) == 0
	checks, err := v.ledger.Verify(ctx, v.sale.ID)
	if err != nil {
		return err
	}
	v.judge(checks)
	return nil
}

// readLedgerAndStream takes a snapshot of the ledger and then reads the whole
// stream: whatever order the snapshot has, its grant is in what is read.
func (v *verification) readLedgerAndStream(ctx context.Context, at restPoint) (err error) {
	now, err := v.clock(ctx, &v.sale)
	if err != nil {
		return err
	}
	return v.ledger.ReadSnapshot(ctx, v.sale.ID, at.stream.StreamID, at.stream.FirstSeq, func(snap *ledger.Snapshot) error {
		v.sale = snap.Sale()
		if v.floor, v.trusted, err = v.floorOf(ctx, snap, at.stream); err != nil {
			return err
		}
		fold := NewFold(&v.sale, now, func(orderID string, _ []byte) error {
			v.marks[orderID] |= inFold
			return nil
		})
		end, err := v.stream.Info(ctx)
		if err != nil {
			return err
		}
		v.purged = end.Purged
		if err := v.stream.ReadGrants(ctx, v.sale.ID, 0, end.LastSeq, func(seq uint64, batch sale.Batch) error {
			v.readBatch(fold, seq, batch)
			return nil
		}); err != nil {
			return err
		}
		if err := fold.read(snap, snap.Orders, v.note); err != nil {
			return err
		}
		v.books, err = fold.Finish()
		return err
	})
}

// findUnwritten looks for a message that the order workers have settled, so that it
// never comes to them again, and that the ledger nevertheless lacks. They settle only
// what is committed, and the snapshot is younger than at: on its way nothing can be.
func (v *verification) findUnwritten(ctx context.Context, at stream.Status) error {
	if !v.trusted || at.AckFloor <= v.floor {
		return nil
	}
	_, found, err := v.stream.TimestampAt(ctx, v.floor+1)
	if err == nil && found { // not when it was purged
		v.unwritten.Addf("message %d is settled and not written; everything is settled through %d", v.floor+1, at.AckFloor)
	}
	return err
}

func (v *verification) readBatch(fold *Fold, seq uint64, batch sale.Batch) {
	if v.batches == 0 {
		v.oldest = batch.Generation
	}
	v.batches++
	for i := range batch.Grants {
		g := &batch.Grants[i]
		if g.Kind == sale.GrantAdjust && v.marks[g.OrderID] == 0 {
			v.adjusts++
		}
		if seq <= v.floor {
			v.marks[g.OrderID] |= inStream | inWritten
		} else {
			v.marks[g.OrderID] |= inStream
			fold.Loose(g)
		}
	}
}

// note looks at everything the ledger has; the stream has been read before.
func (v *verification) note(from origin, orderID string, o *sale.Order) {
	if from != fromOrder {
		v.marks[orderID] |= inLedger
		if from == fromDeadLetter {
			v.deadLetters++
		}
		return
	}
	v.orders++
	was := v.marks[orderID]
	v.marks[orderID] |= inOrders
	switch {
	case was&inStream != 0:
	case o.Generation < v.oldest || o.Generation == v.oldest && v.purged:
		v.oldOrders++
	default:
		v.strayOrders.Addf("order %s has no grant in the stream", orderID)
	}
	if o.Key != "" && sale.OrderID(v.sale.ID, o.User, o.Key) != orderID {
		v.badKeys.Addf("the key of order %s names another order", orderID)
	}
}

// readRedis reads everything Redis holds of the sale and compares it with the
// books. What it finds counts only if the sale was at rest meanwhile.
func (v *verification) readRedis(ctx context.Context) error {
	if err := v.stock.Grants(ctx, v.sale.ID, func(orderID string, _ stock.Stored) error {
		if v.marks[orderID]&inRedis == 0 {
			v.redis.grants++
		}
		v.marks[orderID] |= inRedis
		return nil
	}); err != nil {
		return err
	}
	if err := v.readHoldings(ctx); err != nil {
		return err
	}
	if err := v.readCounts(ctx); err != nil {
		return err
	}
	if err := v.readGivebacks(ctx); err != nil {
		return err
	}
	again, err := v.stock.State(ctx, v.sale.ID, skus(&v.sale))
	if err = butNotLoaded(err); err != nil {
		return err
	}
	if !sameState(v.redis.state, again) {
		v.out.Moving = append(v.out.Moving, "redis changed while it was read")
	}
	return nil
}

func (v *verification) readHoldings(ctx context.Context) error {
	side := &v.redis
	seen := make(map[string]bool, len(v.books.Buyers))
	if err := v.stock.Holdings(ctx, v.sale.ID, func(h stock.Holding) error {
		book, known := v.books.Buyers[h.User]
		switch {
		case seen[h.User]: // a scan may visit twice
			return nil
		case !known:
			side.buyers.Addf("the user of order %s was granted nothing in the books", h.OrderID)
		case book.Units != h.Units:
			side.holdings.Addf("the user of order %s holds %d units in Redis, %d in the books", h.OrderID, h.Units, book.Units)
		}
		if h.Units > side.topHolding.Units {
			side.topHolding = h
		}
		seen[h.User] = true
		return nil
	}); err != nil {
		return err
	}
	side.userCount = int64(len(seen))
	for user, h := range v.books.Buyers {
		if !seen[user] {
			side.buyers.Addf("the user of order %s is no buyer in Redis", h.OrderID)
		}
	}
	return nil
}

// compareLimits holds what Redis counts against the highest limits that were ever in
// force: what was granted under one stays granted when it is lowered. They are read
// last, so that one which was raised meanwhile is among them.
func (v *verification) compareLimits(ctx context.Context) error {
	perUser, byLimit, err := v.ledger.HighestLimits(ctx, v.sale.ID)
	if err != nil {
		return err
	}
	side := &v.redis
	if top := side.topHolding; perUser > 0 && top.Units > perUser {
		side.overLimit.Addf("the user of order %s holds %d units, never were more allowed than %d", top.OrderID, top.Units, perUser)
	}
	for limit, units := range side.topCounts {
		if most := byLimit[limit]; units > most {
			side.overLimit.Addf("limit %s has counted %d units, never were more allowed than %d", limit, units, most)
		}
	}
	return nil
}

// readCounts compares every counter that Redis keeps with the books.
func (v *verification) readCounts(ctx context.Context) error {
	side := &v.redis
	seen := make(map[Counter]bool, len(v.books.Used))
	side.topCounts = make(map[string]int64)
	for window := range v.books.Windows {
		if err := v.stock.Used(ctx, v.sale.ID, window.Limit, window.Period, func(subject string, units int64) error {
			c := Counter{window, subject}
			seen[c] = true
			if want := v.books.Used[c]; want != units {
				side.counts.Addf("limit %s in period %q has counted %d units in Redis, %d in the books", c.Limit, c.Period, units, want)
			}
			side.topCounts[c.Limit] = max(side.topCounts[c.Limit], units)
			return nil
		}); err != nil {
			return err
		}
	}
	side.countCount = int64(len(seen))
	for c, units := range v.books.Used {
		if !seen[c] {
			side.counts.Addf("limit %s in period %q has a count of %d units in the books only", c.Limit, c.Period, units)
		}
	}
	return nil
}

func (v *verification) readGivebacks(ctx context.Context) error {
	side := &v.redis
	seen := make(map[string]bool, len(v.books.Givebacks))
	if err := v.stock.Givebacks(ctx, v.sale.ID, func(id string, units int64) error {
		if want, decided := v.books.Givebacks[id]; !decided || want != units {
			side.givebacks.Addf("giveback %s is of %d units in Redis, %d in the ledger", id, units, want)
		}
		seen[id] = true
		return nil
	}); err != nil {
		return err
	}
	side.backsCount = int64(len(seen))
	for id := range v.books.Givebacks {
		if !seen[id] {
			side.givebacks.Addf("giveback %s is not applied in Redis", id)
		}
	}
	return nil
}
