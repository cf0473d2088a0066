package stock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"pgregory.net/rapid"
)

// machine drives a till and its model alike.
type machine struct {
	*till
	m       *model
	numbers map[string]uint64 // last batch per process
	backs   int               // counts givebacks
}

// TestSaleIsItsModel takes random steps on a real sale and on a model: batches with
// repeats, carts, every kind of limit; givebacks, adjustments, trims, bars; every
// kind of loss, and restores that void what was fenced out. After each step
// the raw keys must be the model's.
func TestSaleIsItsModel(t *testing.T) {
	client := harness.Redis(t).Client()
	name, run := harness.Name(t), 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		left := map[string]int64{
			"A": rapid.Int64Range(0, 12).Draw(t, "units of A"), "B": rapid.Int64Range(0, 4).Draw(t, "units of B"), "C": -1,
		}
		perUser := rapid.SampledFrom([]int64{0, 1, 4}).Draw(t, "limit")
		s := &machine{
			till: openTillAs(t, fmt.Sprintf("%s-%d", name, run), client, left), m: newModel(left, perUser),
			numbers: map[string]uint64{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"grab":    s.on((*machine).grabStep),
			"grab2":   s.on((*machine).grabStep), // twice as often
			"release": s.on((*machine).releaseStep),
			"adjust":  s.on((*machine).adjustStep),
			"trim":    s.on((*machine).trimStep),
			"find":    s.on((*machine).findStep),
			"lose":    s.on((*machine).loseStep),
			"restore": s.on((*machine).restoreStep),
			"":        s.on((*machine).check),
		})
	})
}

func (s *machine) on(step func(*machine, *rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) {
		s.t = t
		step(s, t)
	}
}

// check requires the invariants and, while the state is trusted, the raw keys.
func (s *machine) check(t *rapid.T) {
	taken := map[string]int64{}
	for _, g := range s.m.grants {
		for i, l := range g.ask.Grant.Lines {
			taken[l.SKU] += g.held[i]
		}
	}
	for sku, put := range s.m.put {
		if s.m.left[sku] < 0 || s.m.left[sku] != put-taken[sku] {
			t.Fatalf("%s: %d left of %d with %d taken", sku, s.m.left[sku], put, taken[sku])
		}
	}
	if s.m.broken != "" {
		return
	}
	if got, want := s.dump(), s.m.dump(); got != want {
		t.Fatalf("raw keys\n%s\n\nwant\n%s", got, want)
	}
}

var skus = rapid.SampledFrom([]string{"A", "A", "B", "C"})

func drawLines(t *rapid.T) string {
	var lines []string
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "lines") {
		lines = append(lines, fmt.Sprintf("%s:%d", skus.Draw(t, "sku"), rapid.IntRange(1, 3).Draw(t, "quantity")))
	}
	return strings.Join(lines, " ")
}

func drawAsk(t *rapid.T) string {
	user := rapid.SampledFrom([]string{"u0", "u1", "u2", "u3", "u4", "-"}).Draw(t, "user")
	return fmt.Sprintf("%s o%s%d %s", user, user, rapid.IntRange(0, 4).Draw(t, "key"), drawLines(t))
}

func (s *machine) grabStep(t *rapid.T) {
	by := rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "process")
	s.numbers[by]++
	b := stock.Batch{
		SaleID: s.id, PerUser: s.m.perUser, Process: by, Number: s.numbers[by],
		Acked: rapid.Uint64Range(0, s.numbers[by]-1).Draw(t, "acked"),
	}
	for range rapid.IntRange(1, 6).Draw(t, "grabs") {
		b.Asks = append(b.Asks, ask(drawAsk(t)))
	}
	d, err := s.store.Grab(t.Context(), b)
	if s.refused(t, err) {
		return
	}
	if b.Number <= s.m.process(by).barred {
		if !errors.Is(err, stock.ErrBarred) {
			t.Fatalf("got %v, want ErrBarred", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s.requireDecision(t, b, d)
}

func (s *machine) requireDecision(t *rapid.T, b stock.Batch, d stock.Decision) {
	var got []string
	for _, a := range d.Answers {
		got = append(got, answerText(a))
	}
	if want := s.m.grab(b); !slices.Equal(got, want) {
		t.Fatalf("answers %v, want %v", got, want)
	}
	if d.Applied != int64(len(s.m.applied)) {
		t.Fatalf("%d givebacks, want %d", d.Applied, len(s.m.applied))
	}
	for sku, left := range d.Remaining {
		if left != s.m.left[sku] {
			t.Fatalf("%d of %s left, want %d", left, sku, s.m.left[sku])
		}
	}
	newest, err := s.client.LIndex(t.Context(), s.keys.Outbox(b.Process), 0).Bytes()
	if d.Body != nil && (err != nil || string(newest) != string(d.Body)) {
		t.Fatalf("outbox holds %q, %v; body is %q", newest, err, d.Body)
	}
}

// refused reports whether the state is not trusted, and requires that to be the
// call's answer then.
func (s *machine) refused(t *rapid.T, err error) bool {
	if s.m.broken == "" {
		return false
	}
	requireReason(t, err, s.m.broken)
	return true
}

// releaseStep gives some of a grant's units back, or repeats a giveback.
func (s *machine) releaseStep(t *rapid.T) {
	if len(s.m.order) == 0 {
		return
	}
	order := rapid.SampledFrom(s.m.order).Draw(t, "order")
	grant := s.m.grants[order]
	back := sale.Giveback{SaleID: s.id, OrderID: order, User: grant.ask.Grant.User}
	repeat := s.backs > 0 && rapid.IntRange(0, 3).Draw(t, "repeat") == 0
	given := make([]int64, len(grant.held))
	for i, l := range grant.ask.Grant.Lines {
		given[i] = rapid.Int64Range(0, grant.held[i]).Draw(t, "units")
		if l.Quantity = given[i]; l.Quantity > 0 {
			back.Lines = append(back.Lines, l)
		}
	}
	if len(back.Lines) == 0 {
		return
	}
	back.ID = fmt.Sprintf("back%d", s.backs)
	if repeat {
		back.ID = fmt.Sprintf("back%d", rapid.IntRange(0, s.backs-1).Draw(t, "which"))
	}
	if s.refused(t, s.releaseOnce(t, back)) {
		return
	}
	if repeat {
		return
	}
	s.backs++
	for i := range given {
		grant.held[i] -= given[i]
	}
}

// releaseOnce applies a giveback to the sale and, when it is trusted, the model.
func (s *machine) releaseOnce(t *rapid.T, back sale.Giveback) error {
	err := s.store.Release(t.Context(), back)
	if s.m.broken != "" {
		return err
	}
	if err != nil {
		t.Fatal(err)
	}
	s.m.release(back)
	return nil
}

func (s *machine) adjustStep(t *rapid.T) {
	l := sale.Line{SKU: skus.Draw(t, "sku"), Quantity: rapid.Int64Range(1, 3).Draw(t, "units")}
	back := sale.Giveback{ID: fmt.Sprintf("back%d", s.backs), SaleID: s.id, Lines: []sale.Line{l}}
	if s.refused(t, s.releaseOnce(t, back)) {
		return
	}
	s.backs++
	if _, limited := s.m.put[l.SKU]; limited {
		s.m.put[l.SKU] += l.Quantity
	}
}

func (s *machine) trimStep(t *rapid.T) {
	by := rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "process")
	trim := stock.Trim{
		SaleID: s.id, Process: by, Through: rapid.Uint64Range(0, s.numbers[by]).Draw(t, "through"),
		Durable: rapid.Bool().Draw(t, "durable"), Forget: rapid.Bool().Draw(t, "forget"),
		Bar: rapid.Uint64Range(0, s.numbers[by]+1).Draw(t, "bar"),
	}
	left, err := s.store.Trim(t.Context(), trim)
	if err != nil {
		t.Fatal(err)
	}
	if want := s.m.trim(trim); left != want {
		t.Fatalf("%d batches left, want %d", left, want)
	}
}

func (s *machine) findStep(t *rapid.T) {
	order := fmt.Sprintf("ou%d%d", rapid.IntRange(0, 4).Draw(t, "user"), rapid.IntRange(0, 4).Draw(t, "key"))
	f, ok, err := s.store.Find(t.Context(), s.id, order)
	if s.refused(t, err) {
		return
	}
	g := s.m.grants[order]
	if err != nil || ok != (g != nil) {
		t.Fatalf("%s: found %v, error %v", order, ok, err)
	}
	if ok && f.Durable != (g.generation == 0 || g.number <= s.m.process(g.process).acked) {
		t.Fatalf("%s of batch %d: durable %v, acked %d", order, g.number, f.Durable, s.m.process(g.process).acked)
	}
}

// loseStep takes the sale's trust away.
func (s *machine) loseStep(t *rapid.T) {
	if s.m.broken != "" {
		return
	}
	ctx, what := t.Context(), rapid.SampledFrom([]string{"close", "keys", "key", "scripts", "role"}).Draw(t, "what")
	var err error
	switch what {
	case "close":
		err, s.m.broken = s.store.Close(ctx, s.id), stock.ReasonNoState
	case "keys":
		err, s.m.broken = s.client.Del(ctx, scan(t, s.client, s.prefix()+"*")...).Err(), stock.ReasonNoState
		s.m.processes = map[string]*modelProcess{}
	case "key":
		key := rapid.SampledFrom([]string{
			s.keys.Buyers(), s.keys.Grants(), s.keys.Applied(),
		}).Draw(t, "key")
		n, delErr := s.client.Del(ctx, key).Result()
		if err = delErr; n == 1 {
			s.m.broken = stock.ReasonDamaged
		}
	case "scripts":
		err, s.m.broken = s.client.ScriptFlush(ctx).Err(), stock.ReasonNewServer
	case "role":
		changeReplID(t, s.client)
		s.m.broken = stock.ReasonMoved
	}
	if err != nil {
		t.Fatal(err)
	}
}

// restoreStep begins the next generation. Some grants of the last one are void:
// their batches never reached the stream.
func (s *machine) restoreStep(t *rapid.T) {
	for _, order := range slices.Clone(s.m.order) {
		g := s.m.grants[order]
		untouched := true
		for i, l := range g.ask.Grant.Lines {
			untouched = untouched && g.held[i] == l.Quantity
		}
		if g.generation == s.m.generation && untouched && rapid.IntRange(0, 3).Draw(t, "void") == 0 {
			s.m.void(order)
		}
	}
	s.m.restored(s.gen+1, s.fence+1)
	s.restore(s.m.left, func(r *stock.Restore) error { return s.m.fill(t.Context(), r) })
}

// fill adds what the model knows to a restore.
func (m *model) fill(ctx context.Context, r *stock.Restore) error {
	var errs []error
	for order, g := range m.grants {
		errs = append(errs, r.Grant(ctx, order, g.ask.Record))
	}
	for user, h := range m.bought {
		errs = append(errs, r.Buyer(ctx, user, h.units, h.last))
	}
	for id, units := range m.applied {
		errs = append(errs, r.Giveback(ctx, id, units))
	}
	return errors.Join(errs...)
}
