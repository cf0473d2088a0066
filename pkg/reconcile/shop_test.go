package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stock"
	"github.com/doorbuster/doorbuster/pkg/stream"
	"github.com/redis/go-redis/v9"
)

// shop is one sale of one item, SKU "A", on private real servers: the test grabs
// and writes the ledger by hand, and the reconciler does the rest.
type shop struct {
	t       testing.TB
	redis   *harness.RedisServer
	client  *redis.Client
	store   *stock.Store
	nats    *harness.NATSServer
	files   string // folder of what nats-server keeps
	stream  *stream.Stream
	dsn     string
	ledger  *ledger.Ledger
	rec     *Reconciler
	id      string
	process string
	number  uint64 // of the process's last batch
}

// impatient makes what would be waited for short.
var impatient = Config{
	AuditInterval: 20 * time.Millisecond, DeepAuditInterval: 20 * time.Millisecond, RelayInterval: 20 * time.Millisecond,
	LeaseTTL: time.Second, Chunk: 7,
}

func openShop(t testing.TB, units int64, options ...harness.RedisOption) *shop {
	t.Helper()
	s := &shop{t: t, redis: harness.Redis(t, options...), files: filepath.Join(t.TempDir(), "nats"), id: harness.Name(t), process: "p1"}
	s.nats = harness.NATS(t, harness.WithNATSConfig(fmt.Sprintf("jetstream {store_dir: %q, sync_interval: always}", s.files)))
	s.client = s.redis.Client()
	s.store = stock.New(s.client)
	s.dsn = harness.SharedMariaDB(t).NewDatabase(t)
	s.stream, s.ledger = openStream(t, s.nats.URL()), openLedger(t, s.dsn)
	s.rec = s.reconciler()
	s.must(s.stream.AwaitTopology(t.Context()))
	s.must(s.ledger.Migrate(t.Context()))
	s.create(s.id, units, sale.StatusApproved)
	return s
}

func openStream(t testing.TB, url string) *stream.Stream {
	t.Helper()
	str, err := stream.Open(stream.Config{URL: url, Logger: slog.New(slog.DiscardHandler), FirstSeq: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(str.Close)
	harness.Eventually(t, 10*time.Second, "a connection to NATS", func() (bool, string) { return str.Reachable(), "" })
	return str
}

func openLedger(t testing.TB, dsn string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// reconciler returns another reconciler over the same servers.
func (s *shop) reconciler() *Reconciler {
	s.t.Helper()
	r, err := New(impatient, stock.New(s.redis.Client()), s.stream, s.ledger, nil, nil)
	s.must(err)
	return r
}

func (s *shop) create(id string, units int64, status sale.Status) {
	s.t.Helper()
	now := time.Now().Truncate(time.Second)
	_, err := s.ledger.CreateSale(s.t.Context(), sale.Sale{
		ID: id, Name: "sale", Status: status, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		PaymentWindow: sale.Duration(time.Hour), PerUserLimit: 1, Timezone: "UTC",
		Items: []sale.Item{{SKU: "A", Stock: units, PriceCents: 100}},
	})
	s.must(err)
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// reconcile requires a run to end with this result.
func (s *shop) reconcile(want Result, reason string) Report {
	s.t.Helper()
	report, err := s.rec.Reconcile(s.t.Context(), s.id, reason)
	s.must(err)
	if report.Result != want {
		s.t.Fatalf("the run ended %s, want %s: %+v", report.Result, want, report)
	}
	return report
}

func user(i int) string { return fmt.Sprintf("user%d", i) }

// key is the one idempotency key a user has.
func key(user string) string { return "key-" + user }

// decide has grab.lua decide one unit for each user; nothing is published.
func (s *shop) decide(users ...string) (stock.Decision, error) {
	now := time.Now().UTC()
	s.number++
	b := stock.Batch{SaleID: s.id, PerUser: 1, Process: s.process, Number: s.number}
	for _, u := range users {
		g := &sale.Grant{
			Kind: sale.GrantGrab, OrderID: sale.OrderID(s.id, u, key(u)), User: u, Key: key(u), IP: "127.0.0.1",
			At: now, ExpiresAt: now.Add(time.Hour), Lines: []sale.Line{{SKU: "A", Quantity: 1, PriceCents: 100}},
		}
		b.Asks = append(b.Asks, stock.Ask{Grant: g, Record: sale.AppendGrant(nil, g)})
	}
	return s.store.Grab(s.t.Context(), b)
}

// grab decides and publishes; codes has grab.lua's letter for each user.
func (s *shop) grab(users ...string) (codes string) {
	s.t.Helper()
	d, err := s.decide(users...)
	s.must(err)
	if d.Body != nil {
		s.must(s.publish(d))
	}
	return codesOf(d)
}

func codesOf(d stock.Decision) string {
	var codes []byte
	for _, a := range d.Answers {
		codes = append(codes, byte(a.Code))
	}
	return string(codes)
}

// publish brings a decision's batch into the stream and takes it off the outbox.
func (s *shop) publish(d stock.Decision) error {
	if _, err := s.stream.Publish(s.t.Context(), s.id, d.Head, d.Body); err != nil {
		return err
	}
	_, err := s.store.Trim(s.t.Context(), stock.Trim{
		SaleID: s.id, Process: d.Head.Process, Through: d.Head.Number, Durable: true,
	})
	return err
}

// grabs lets users from to (exclusive) win, one batch each.
func (s *shop) grabs(from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		if codes := s.grab(user(i)); codes != "W" {
			s.t.Fatalf("user %d got %s, want W", i, codes)
		}
	}
}

// write is the order worker: it writes the whole stream, or only its first
// messages when through is not 0.
func (s *shop) write(through uint64) {
	s.t.Helper()
	status, err := s.stream.Info(s.t.Context())
	s.must(err)
	if through == 0 {
		through = status.LastSeq
	}
	at, _, err := s.stream.TimestampAt(s.t.Context(), through)
	s.must(err)
	b := ledger.Batch{StreamID: status.StreamID, Done: []ledger.Range{{First: 1, Last: through, LastAt: at}}}
	s.must(s.stream.ReadGrants(s.t.Context(), s.id, 0, through, func(seq uint64, batch sale.Batch) error {
		b.Messages = append(b.Messages, ledger.Message{Seq: seq, SaleID: s.id, Batch: batch})
		return nil
	}))
	result, err := s.ledger.Record(s.t.Context(), b)
	s.must(err)
	if len(result.Rejected) > 0 {
		s.t.Fatalf("the ledger rejected %v", result.Rejected)
	}
}

func (s *shop) lastSeq() uint64 {
	s.t.Helper()
	status, err := s.stream.Info(s.t.Context())
	s.must(err)
	return status.LastSeq
}

func (s *shop) state() stock.State {
	s.t.Helper()
	st, err := s.store.State(s.t.Context(), s.id, []string{"A"})
	s.must(err)
	return st
}

// requireState requires what Redis has left and knows; buyers are users who were
// granted something, be it that they gave it back.
func (s *shop) requireState(remaining, buyers, grants int64) {
	s.t.Helper()
	st := s.state()
	if st.Remaining["A"] != remaining || st.Buyers != buyers || st.Grants != grants {
		s.t.Fatalf("Redis has %d left, %d buyers, %d grants; want %d, %d, %d",
			st.Remaining["A"], st.Buyers, st.Grants, remaining, buyers, grants)
	}
}

// requireNotLoaded requires that nothing can be sold.
func (s *shop) requireNotLoaded(reason string) {
	s.t.Helper()
	_, err := s.decide("nobody")
	var refused *stock.NotLoaded
	if !errors.As(err, &refused) || refused.Reason != reason {
		s.t.Fatalf("a grab answered %v, want not loaded: %s", err, reason)
	}
}

// requireSound writes the rest of the stream, applies what is to be given back,
// and requires every guarantee to hold, at rest.
func (s *shop) requireSound() Verification {
	s.t.Helper()
	s.write(0)
	s.must(s.rec.RelayAll(s.t.Context()))
	v, err := s.rec.Verify(s.t.Context(), s.id)
	s.must(err)
	if !v.AtRest || !v.OK || !v.Loaded {
		s.t.Fatalf("not sound: at rest %v %v, loaded %v %s, failed %+v", v.AtRest, v.Moving, v.Loaded, v.Why, failed(v))
	}
	return v
}

func failed(v Verification) []Check {
	var checks []Check
	for _, c := range v.Checks {
		if !c.OK {
			checks = append(checks, c)
		}
	}
	return checks
}

// sellOut requires that users from on get exactly the units that are left, and
// the next one none.
func (s *shop) sellOut(from, units int) {
	s.t.Helper()
	s.grabs(from, from+units)
	if codes := s.grab("too late"); codes != "S" {
		s.t.Fatalf("one user too many got %s, want S", codes)
	}
}

// cancel decides a cancellation in the ledger; Redis does not hear of it yet.
func (s *shop) cancel(user string) sale.Giveback {
	s.t.Helper()
	_, g, err := s.ledger.Cancel(context.Background(), sale.OrderID(s.id, user, key(user)), "test", "")
	s.must(err)
	return g
}
