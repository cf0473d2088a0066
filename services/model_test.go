package services_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/grab"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"pgregory.net/rapid"
)

// rules is what a sale must do, computed the plain way: every count is added up
// from the orders each time it is asked for.
type rules struct {
	sale   sale.Sale
	left   map[string]int64 // stock without what is sold; sale.Unlimited
	orders map[string]*modelOrder
	ids    []string // in the order they were granted
}

type modelOrder struct {
	user, ip string
	lines    []sale.Line
	returned map[string]int64
	kept     int64 // units that came back and stay counted against the user
	status   sale.OrderStatus
}

func (o *modelOrder) units() (n int64) {
	for _, l := range o.lines {
		n += l.Quantity
	}
	return n
}

// held is what did not come back.
func (o *modelOrder) held() int64 {
	if !o.status.Live() {
		return 0
	}
	n := o.units()
	for _, back := range o.returned {
		n -= back
	}
	return n
}

// used is what counts against a limit for a subject; "per_user_limit" is one too.
func (r *rules) used(scope sale.LimitScope, subject string) (n int64) {
	for _, o := range r.orders {
		switch {
		case scope == sale.ScopeUser && o.user != subject, scope == sale.ScopeIP && o.ip != subject:
		case scope == sale.ScopeUser:
			n += o.held() + o.kept
		default:
			n += o.held()
		}
	}
	return n
}

// remaining is what can be grabbed of an item.
func (r *rules) remaining(sku string) int64 {
	left := r.left[sku]
	if left == sale.Unlimited {
		return left
	}
	for _, o := range r.orders {
		for _, l := range o.lines {
			if l.SKU == sku && o.status.Live() {
				left -= l.Quantity - o.returned[sku]
			}
		}
	}
	return left
}

// answer is what a new grab must hear: its outcome, and who refuses.
func (r *rules) answer(user, ip string, lines []sale.Line) (sale.Outcome, string) {
	var units int64
	for _, l := range lines {
		units += l.Quantity
	}
	has := r.used(sale.ScopeUser, user)
	if most := r.sale.PerUserLimit; most > 0 && has+units > most {
		if most == 1 && has > 0 {
			return sale.AlreadyGrabbed, ""
		}
		return sale.LimitExceeded, sale.LimitPerUser
	}
	for _, l := range r.sale.Limits {
		subject := map[sale.LimitScope]string{sale.ScopeUser: user, sale.ScopeIP: ip}[l.Scope]
		if r.used(l.Scope, subject)+units > l.Max {
			return sale.LimitExceeded, l.Name()
		}
	}
	for _, l := range lines {
		if left := r.remaining(l.SKU); left != sale.Unlimited && left < l.Quantity {
			return sale.SoldOut, l.SKU
		}
	}
	return sale.Won, ""
}

// trial drives a sale of the world and its model alike.
type trial struct {
	*world
	*rapid.T
	rules
	keys    int
	returns int
	loaded  bool
}

// TestASaleFollowsItsRules takes random steps on a real sale and on a model of its rules: grabs and
// carts by two engines, repeats, payments, cancellations, returns, expiries,
// adjustments, limits that are raised and lowered, Redis wiped, restores. Each answer
// must be the model's, and at the end every guarantee must hold.
func TestASaleFollowsItsRules(t *testing.T) {
	w := openWorld(t, 0)
	name, run := harness.Name(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s := &trial{world: w, T: rt, loaded: true}
		s.begin(fmt.Sprintf("%s-%d", name, run))
		rt.Repeat(map[string]func(*rapid.T){
			"grab":    s.on((*trial).grabStep),
			"grab2":   s.on((*trial).grabStep), // more often than the rest
			"grab3":   s.on((*trial).grabStep),
			"repeat":  s.on((*trial).repeatStep),
			"pay":     s.on((*trial).payStep),
			"cancel":  s.on((*trial).cancelStep),
			"return":  s.on((*trial).returnStep),
			"expire":  s.on((*trial).expireStep),
			"raise":   s.on((*trial).raiseStep),
			"take":    s.on((*trial).takeStep),
			"limit":   s.on((*trial).limitStep),
			"wipe":    s.on((*trial).wipeStep),
			"lose":    s.on((*trial).loseCountStep),
			"restore": s.on((*trial).restoreStep),
		})
		s.T = rt
		s.end()
	})
}

func (s *trial) on(step func(*trial)) func(*rapid.T) {
	return func(t *rapid.T) {
		s.T = t
		step(s)
	}
}

func (s *trial) begin(id string) {
	s.sale = sale.Sale{ID: id, PerUserLimit: rapid.SampledFrom([]int64{0, 1, 5}).Draw(s.T, "per user")}
	s.sale.NoRegrab = rapid.Bool().Draw(s.T, "no regrab")
	s.left, s.orders = map[string]int64{}, map[string]*modelOrder{}
	for _, sku := range []string{"A", "B", "C"} {
		units := rapid.SampledFrom([]int64{sale.Unlimited, 0, 3, 8}).Draw(s.T, "stock of "+sku)
		s.sale.Items = append(s.sale.Items, sale.Item{SKU: sku, Stock: units, PriceCents: 100})
		s.left[sku] = units
	}
	for _, scope := range []sale.LimitScope{sale.ScopeUser, sale.ScopeIP, sale.ScopeSale} {
		if rapid.Bool().Draw(s.T, "limit of "+string(scope)) {
			window := rapid.SampledFrom([]sale.LimitWindow{sale.WindowSale, sale.WindowYear}).Draw(s.T, "window")
			s.sale.Limits = append(s.sale.Limits, sale.Limit{Scope: scope, Window: window, Max: s.draw("max", 0, 9)})
		}
	}
	s.open(s.T, s.sale)
}

func (s *trial) draw(what string, from, to int64) int64 {
	return rapid.Int64Range(from, to).Draw(s.T, what)
}

func (s *trial) engine() *grab.Engine {
	return s.grabs[s.draw("process", 0, int64(len(s.grabs))-1)].Engine()
}

// request is a new grab of one to three lines.
func (s *trial) request() grab.Request {
	s.keys++
	r := grab.Request{
		SaleID: s.sale.ID, User: fmt.Sprintf("u%d", s.draw("user", 0, 3)), IP: fmt.Sprintf("192.0.2.%d", s.draw("address", 0, 1)),
		Key: fmt.Sprintf("k%d", s.keys),
	}
	for _, it := range s.sale.Items {
		if n := s.draw("quantity of "+it.SKU, 0, 2); n > 0 {
			r.Lines = append(r.Lines, sale.Line{SKU: it.SKU, Quantity: n})
		}
	}
	if len(r.Lines) == 0 {
		r.Lines = []sale.Line{{SKU: "A", Quantity: 1}}
	}
	return r
}

func (s *trial) grabStep() {
	r := s.request()
	got := s.ask(r)
	if !s.loaded {
		s.requireNotLoaded(got)
		return
	}
	want, who := s.answer(r.User, r.IP, r.Lines)
	if said := got.Limit + got.SKU; got.Outcome != want || said != who || got.Replayed {
		s.Fatalf("%+v was answered %s %q, want %s %q", r, got.Outcome, said, want, who)
	}
	if want != sale.Won {
		return
	}
	s.ids = append(s.ids, got.OrderID)
	s.orders[got.OrderID] = &modelOrder{user: r.User, ip: r.IP, lines: r.Lines, returned: map[string]int64{}, status: sale.OrderPendingPayment}
	s.written(got.OrderID)
}

func (s *trial) ask(r grab.Request) grab.Answer {
	got, err := s.engine().Grab(context.Background(), r)
	must(s, err)
	return got
}

// written waits for the order of a grant.
func (s *trial) written(id string) {
	eventually(s, 10*time.Second, "the order is written", func() (bool, string) {
		o, err := s.ledger.GetOrder(context.Background(), id)
		return err == nil && o.Status == s.orders[id].status, fmt.Sprint(o.Status, err)
	})
}

func (s *trial) requireNotLoaded(got grab.Answer) {
	if got.Outcome != sale.NotLoaded {
		s.Fatalf("a sale without trusted state answered %s", got.Outcome)
	}
}

// some draws an order, if there is one.
func (s *trial) some() (string, *modelOrder) {
	if len(s.ids) == 0 {
		return "", nil
	}
	id := rapid.SampledFrom(s.ids).Draw(s.T, "order")
	return id, s.orders[id]
}

// repeatStep sends a key again that won before: whatever became of the order, the
// answer is the same.
func (s *trial) repeatStep() {
	id, o := s.some()
	if o == nil {
		return
	}
	at := slices.Index(s.ids, id)
	stored, err := s.ledger.GetOrder(context.Background(), s.ids[at])
	must(s, err)
	got := s.ask(grab.Request{SaleID: s.sale.ID, User: o.user, IP: o.ip, Key: stored.Key, Lines: o.lines})
	if !s.loaded {
		s.requireNotLoaded(got)
		return
	}
	if got.Outcome != sale.Won || !got.Replayed || got.OrderID != id {
		s.Fatalf("a repeat of %s was answered %+v", id, got)
	}
}

func (s *trial) payStep() {
	id, o := s.some()
	if o == nil {
		return
	}
	_, err := s.ledger.Pay(context.Background(), id)
	s.requireRefused(err, o.status.Live())
	if o.status == sale.OrderPendingPayment {
		o.status = sale.OrderPaid
	}
}

// requireRefused requires an order's state to allow what was tried, or not.
func (s *trial) requireRefused(err error, allowed bool) {
	if _, refused := errors.AsType[*ledger.OrderStatusError](err); refused == allowed || (err != nil && !refused) {
		s.Fatalf("got %v, allowed %v", err, allowed)
	}
}

// cancelStep is an operator's rollback, once or twice. An order of which everything
// came back has nothing to roll back.
func (s *trial) cancelStep() {
	id, o := s.some()
	if o == nil {
		return
	}
	for range s.draw("times", 1, 2) {
		_, back, err := s.ledger.Cancel(context.Background(), id, "admin", "")
		s.requireRefused(err, o.held() > 0 || o.status == sale.OrderCancelled)
		if err == nil {
			s.ends(o, sale.OrderCancelled)
			must(s, s.givebacks.Return(context.Background(), back))
		}
	}
}

// ends lets an order end: nothing of it is held any more.
func (s *trial) ends(o *modelOrder, status sale.OrderStatus) {
	s.comesBack(o, o.held())
	o.status = status
}

// comesBack counts units that came back against their user, when the sale says so
// at that moment.
func (s *trial) comesBack(o *modelOrder, units int64) {
	if s.sale.NoRegrab {
		o.kept += units
	}
}

// returnStep brings some units of an order back, once or twice under one id.
func (s *trial) returnStep() {
	id, o := s.some()
	if o == nil {
		return
	}
	line := rapid.SampledFrom(o.lines).Draw(s.T, "line")
	units := s.draw("units back", 1, 2)
	s.returns++
	fits := o.returned[line.SKU]+units <= line.Quantity
	for range s.draw("times", 1, 2) {
		_, back, err := s.ledger.Return(context.Background(), ledger.Return{
			OrderID: id, ID: fmt.Sprintf("r%d", s.returns), Lines: []sale.Line{{SKU: line.SKU, Quantity: units}}, Actor: "admin",
		})
		if _, tooMany := errors.AsType[*ledger.ReturnError](err); tooMany {
			if fits || o.status != sale.OrderPaid {
				s.Fatalf("%d of %+v came back too many: %v", units, o, err)
			}
			return
		}
		s.requireRefused(err, o.status == sale.OrderPaid)
		if err != nil {
			return
		}
		must(s, s.givebacks.Return(context.Background(), back))
	}
	o.returned[line.SKU] += units
	s.comesBack(o, units)
}

// expireStep lets the payment windows of all orders be over.
func (s *trial) expireStep() {
	done, err := s.ledger.ExpireDue(context.Background(), time.Now().Add(time.Hour), ledger.DueOrder{}, 1000)
	must(s, err)
	must(s, s.givebacks.ReturnAll(context.Background(), done.Givebacks))
	for _, o := range s.orders {
		if o.status == sale.OrderPendingPayment {
			s.ends(o, sale.OrderExpired)
		}
	}
}

func (s *trial) raiseStep() {
	sku := rapid.SampledFrom([]string{"A", "B", "C"}).Draw(s.T, "SKU")
	s.keys++
	units := s.draw("units more", 1, 4)
	done, err := s.ledger.AdjustUp(context.Background(), ledger.Adjustment{
		SaleID: s.sale.ID, SKU: sku, Delta: units, Ref: fmt.Sprintf("up%d", s.keys), Actor: "admin",
	})
	if s.left[sku] == sale.Unlimited {
		if !errors.Is(err, ledger.ErrUnlimited) {
			s.Fatalf("unlimited stock was raised: %v", err)
		}
		return
	}
	must(s, err)
	must(s, s.givebacks.Return(context.Background(), *done.Giveback))
	s.left[sku] += units
}

func (s *trial) takeStep() {
	sku := rapid.SampledFrom([]string{"A", "B", "C"}).Draw(s.T, "SKU")
	if s.left[sku] == sale.Unlimited {
		return
	}
	s.keys++
	units := s.draw("units less", 1, 4)
	id := sale.OrderID(s.sale.ID, "", fmt.Sprintf("down%d", s.keys))
	got, err := s.engine().Take(context.Background(), grab.Adjustment{SaleID: s.sale.ID, SKU: sku, Units: units, ID: id, Note: "admin\n"})
	must(s, err)
	left := s.remaining(sku)
	switch {
	case !s.loaded:
		s.requireNotLoaded(got)
	case left < units:
		if got.Outcome != sale.SoldOut || got.Left != left {
			s.Fatalf("%d of %d units were taken away: %+v", units, left, got)
		}
	case got.Outcome != sale.Won:
		s.Fatalf("%d of %d units were not taken away: %+v", units, left, got)
	default:
		s.left[sku] -= units
	}
}

// limitStep raises or lowers every limit, also below what is used, and lets buyers
// grab again what they gave back, or not.
func (s *trial) limitStep() {
	perUser, noRegrab := s.draw("per user", 0, 6), rapid.Bool().Draw(s.T, "no regrab")
	limits := slices.Clone(s.sale.Limits)
	for i := range limits {
		limits[i].Max = s.draw("max", 0, 12)
	}
	edited, err := s.ledger.EditSale(context.Background(), s.sale.ID, ledger.Cause{Actor: "admin"}, func(e *sale.Sale) error {
		e.PerUserLimit, e.Limits, e.NoRegrab = perUser, limits, noRegrab
		return nil
	})
	must(s, err)
	s.publish(s, &edited)
	s.sale.PerUserLimit, s.sale.Limits, s.sale.NoRegrab = perUser, limits, noRegrab
}

// wipeStep takes all or some of what Redis knows of the sale.
func (s *trial) wipeStep() {
	keys := stock.KeysOf(s.sale.ID)
	if rapid.Bool().Draw(s.T, "all") {
		must(s, s.redis.FlushAll(context.Background()).Err())
		s.loaded = false
		return
	}
	if lost := rapid.SampledFrom([]string{keys.Meta(), keys.Buyers(), keys.Grants()}).Draw(s.T, "key"); s.redis.Del(context.Background(), lost).Val() == 1 {
		s.loaded = false
	}
}

// loseCountStep takes what one limit has counted. Whoever is asked must see that
// something is missing, and bring it back without being told to.
func (s *trial) loseCountStep() {
	if len(s.sale.Limits) == 0 || !s.loaded {
		return
	}
	l := rapid.SampledFrom(s.sale.Limits).Draw(s.T, "limit")
	key := stock.KeysOf(s.sale.ID).Used(l.Name(), l.Window.Period(time.Now(), s.sale.Location()))
	if s.redis.Del(context.Background(), key).Val() == 0 {
		return
	}
	report, err := s.rec.Reconcile(context.Background(), s.sale.ID, stock.ReasonDamaged)
	must(s, err)
	if report.Result != reconcile.ResultRestored || report.Found.Why != stock.ReasonDamaged {
		s.Fatalf("a lost count was found %q and %s", report.Found.Why, report.Result)
	}
}

func (s *trial) restoreStep() {
	report, err := s.rec.Reconcile(context.Background(), s.sale.ID, reconcile.ReasonForced)
	must(s, err)
	if report.Result != reconcile.ResultRestored || report.Violations.Count > 0 {
		s.Fatalf("restored %+v", report)
	}
	s.loaded = true
}

// end brings the sale to rest and holds everything against the model.
func (s *trial) end() {
	if !s.loaded {
		s.restoreStep()
	}
	var v reconcile.Verification
	eventually(s, 20*time.Second, "the sale is at rest", func() (bool, string) {
		must(s, s.rec.RelayAll(context.Background()))
		var err error
		v, err = s.rec.Verify(context.Background(), s.sale.ID)
		must(s, err)
		return v.AtRest, fmt.Sprint(v.Moving)
	})
	if !v.OK {
		s.Fatalf("guarantees are violated: %+v", v.Checks)
	}
	st, err := s.store.State(context.Background(), s.sale.ID, []string{"A", "B", "C"})
	must(s, err)
	for sku := range s.left {
		if st.Remaining[sku] != s.remaining(sku) {
			s.Fatalf("%d of %s are left, the model has %d", st.Remaining[sku], sku, s.remaining(sku))
		}
	}
	s.requireCounts()
}

// requireCounts holds what limits have counted against the model.
func (s *trial) requireCounts() {
	for _, l := range s.sale.Limits {
		period := l.Window.Period(time.Now(), s.sale.Location())
		got := map[string]int64{}
		must(s, s.store.Used(context.Background(), s.sale.ID, l.Name(), period, func(subject string, units int64) error {
			got[subject] = units
			return nil
		}))
		for _, subject := range slices.Sorted(maps.Keys(got)) {
			if want := s.used(l.Scope, subject); got[subject] != want {
				s.Fatalf("limit %s has counted %d for %q, the model %d", l.Name(), got[subject], subject, want)
			}
		}
	}
}
