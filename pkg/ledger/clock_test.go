package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/doorbuster/doorbuster/pkg/ledger"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// slowBy is an empty ledger on a database whose clock stands still, so far behind the
// clock of this process. It returns what that clock says.
func slowBy(t *testing.T, behind time.Duration) (desk, time.Time) {
	t.Helper()
	at := time.Now().UTC().Add(-behind).Truncate(time.Second)
	dsn := harness.SharedMariaDB(t).NewDatabase(t)
	return desk{open(t, ledger.Config{DSN: fmt.Sprintf("%s&timestamp=%d", dsn, at.Unix())}), openRaw(t, "mysql", dsn), false}, at
}

func TestTheTimeIsTheDatabases(t *testing.T) {
	onEach(t, func(t *testing.T, d desk) {
		before := time.Now().Add(-time.Millisecond)
		got, err := d.Time(t.Context())
		must(t, err)
		if got.Before(before.Truncate(time.Millisecond)) || got.After(time.Now().Add(time.Millisecond)) {
			t.Errorf("the database here says %v, it is %v", got, before)
		}
		equal(t, "zone", got.Location(), time.UTC)
	})
	d, at := slowBy(t, time.Hour)
	got, err := d.Time(t.Context())
	must(t, err)
	equal(t, "what a slow one says", got, at)
}

func TestWhatIsDueIsJudgedByTheDatabasesClock(t *testing.T) {
	d, at := slowBy(t, time.Hour)
	g := fulfilled(t, d, sale.FulfilPaid, sale.FailurePark)
	queued, err := d.GetDelivery(t.Context(), g.OrderID)
	must(t, err)
	equal(t, "queued", queued.NextAt, at)
	equal(t, "to be given up", queued.GiveUpAt, at.Add(time.Hour))

	claims := claim(t, d, 10, time.Minute)
	equal(t, "claimed at", claims.At, at)
	equal(t, "end of the lease", claims.Deliveries[0].NextAt, at.Add(time.Minute))
	hosts, _, err := d.DueHosts(t.Context(), "", 10)
	must(t, err)
	equal(t, "receivers with due deliveries during the lease", len(hosts), 0)
	equal(t, "claimed during the lease", len(claim(t, d, 10, time.Minute).Deliveries), 0)

	resent, err := d.Resend(t.Context(), g.OrderID)
	must(t, err)
	equal(t, "sent again", resent.NextAt, at)
	equal(t, "to be given up later", resent.GiveUpAt, at.Add(time.Hour))
}
