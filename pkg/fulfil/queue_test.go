package fulfil_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/doorbuster/doorbuster/pkg/fulfil"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestAProcessWhoseClockIsAheadGivesNothingUpEarly(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusInternalServerError))
	s.sale("s", r.URL, rollback)
	// To the database it is an hour ago, for good.
	at := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	s.ledger = get[*ledger.Ledger](t)(ledger.Open(t.Context(), ledger.Config{DSN: fmt.Sprintf("%s&timestamp=%d", s.dsn, at.Unix())}))
	defer s.ledger.Close()
	id := s.orders("s", 1)[0]
	db := get[*sql.DB](t)(sql.Open("mysql", s.dsn))
	defer db.Close()
	get[sql.Result](t)(db.ExecContext(t.Context(), "UPDATE deliveries SET next_at = ?, give_up_at = ?", at, at.Add(time.Minute)))
	stop := s.send(keen)
	defer stop()
	var d ledger.Delivery
	harness.Eventually(t, wait, "the call failed", func() (bool, string) {
		d = get[ledger.Delivery](t)(s.ledger.GetDelivery(t.Context(), id))
		return d.LastError != "", fmt.Sprintf("%+v", d)
	})
	if d.Status != ledger.DeliveryWaiting || d.NextAt.After(at.Add(time.Minute)) {
		t.Errorf("the delivery is %s until %s, want waiting until soon after %s", d.Status, d.NextAt, at)
	}
	s.requireOrder(id, sale.OrderPaid, "")
}

// closed is a ledger in which the queue of one receiver can't be read.
type closed struct {
	fulfil.Ledger
	host string
}

func (c *closed) ClaimDeliveries(ctx context.Context, host string, limit int, lease time.Duration) (ledger.Claims, error) {
	if host == c.host {
		return ledger.Claims{}, errors.New("this queue can't be read")
	}
	return c.Ledger.ClaimDeliveries(ctx, host, limit, lease)
}

func TestAQueueThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	s := openShop(t)
	unread, read := receive(t, status(http.StatusOK)), receive(t, status(http.StatusOK))
	s.sale("unread", unread.URL)
	s.sale("read", read.URL)
	first, second := s.orders("unread", 1)[0], s.orders("read", 1)[0] // the one that waits longest comes first
	host := strings.TrimPrefix(unread.URL, "http://")
	s.sendWith(keen, &closed{Ledger: s.ledger, host: host})
	s.await(ledger.DeliveryDelivered, second)
	s.await(ledger.DeliveryWaiting, first)
	harness.Eventually(t, wait, "the log names the receiver", func() (bool, string) {
		return strings.Contains(s.log.String(), "receiver "+host+": this queue can't be read"), s.log.String()
	})
}

func TestAnOrderThatCannotBeReadWaitsForAnOperatorAndHoldsUpNoOther(t *testing.T) {
	s := openShop(t)
	r := receive(t, status(http.StatusOK))
	s.sale("s", r.URL)
	ids := s.orders("s", 3)
	db := get[*sql.DB](t)(sql.Open("mysql", s.dsn))
	defer db.Close()
	get[sql.Result](t)(db.ExecContext(t.Context(), "UPDATE orders SET items = '{}' WHERE id = ?", ids[0]))
	s.send(keen)
	s.await(ledger.DeliveryDelivered, ids[1:]...)
	s.await(ledger.DeliveryParked, ids[0])
	harness.Eventually(t, wait, "the metrics and the log tell of it", func() (bool, string) {
		n := testutil.ToFloat64(s.metrics.Ended.Of(string(ledger.DeliveryParked)))
		return n == 1 && strings.Contains(s.log.String(), ids[0]), fmt.Sprint(n, s.log)
	})
}
