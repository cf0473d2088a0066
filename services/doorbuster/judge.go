package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/doorbuster/doorbuster/pkg/reconcile"
	"golang.org/x/sync/errgroup"
)

// open creates and approves a sale.
func (a *api) open(ctx context.Context, draft draftBody) error {
	if _, err := a.do(ctx, call{method: http.MethodPost, path: adminSales(), body: draft}); err != nil {
		return err
	}
	_, err := a.do(ctx, call{method: http.MethodPost, path: adminSales(draft.ID, "approve")})
	return err
}

// Bounds of the checks after the crowd.
const (
	restTimeout = 30 * time.Second
	restPoll    = 100 * time.Millisecond
	orderLooks  = 32 // orders looked at side by side
)

// judge waits until the sale is at rest, holds what the crowd was told against
// the books, and prints everything. It fails unless every promise holds.
func (d *demo) judge(ctx context.Context, s *storm) error {
	verification, err := d.api.atRest(ctx, demoSale)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	lost, err := d.api.lostWinners(ctx, s.Winners)
	if err != nil {
		return fmt.Errorf("look at the winners' orders: %w", err)
	}
	orders, users, err := d.api.countOrders(ctx, demoSale)
	if err != nil {
		return fmt.Errorf("count the orders: %w", err)
	}
	d.sayf("")
	if err := s.WriteText(d.term.out); err != nil {
		return err
	}
	d.sayf("\nRedis lost everything (%s) after %d of %d units were sold. Selling stood still for %s.\n",
		d.stage.what(), s.wonBefore, d.Units, load.Short(s.stoodFor))
	also := map[int]string{
		1: fmt.Sprintf("stock=%d sold=%d", d.Units, orders),
		2: fmt.Sprintf("users=%d orders=%d", users, orders),
		3: fmt.Sprintf("winners=%d found=%d", s.DistinctWinners, len(s.Winners)-len(lost)),
		4: fmt.Sprintf("replays=%d contradictions=%d", s.Replayed, s.Contradictions),
		7: fmt.Sprintf("losses=1 stood_still=%s", load.Short(s.stoodFor)),
	}
	if err := writeGuarantees(d.term.out, &verification, also); err != nil {
		return err
	}
	d.sayf("")
	promises := []promise{
		{fmt.Sprintf("exactly the stock is sold: %d orders of %d units", orders, d.Units), orders == d.Units},
		{fmt.Sprintf("one each: %d distinct users", users), users == d.Units},
		{fmt.Sprintf("who was told \"won\" has the order: %d winners, %d without", s.DistinctWinners, len(lost)), len(lost) == 0 && s.DistinctWinners > s.wonBefore},
		{fmt.Sprintf("one answer per key: %d contradictions in %d replays", s.Contradictions, s.Replayed), s.Contradictions == 0},
		{fmt.Sprintf("nobody was left without an answer: %d of %d grabs", s.Undecided, s.Grabs), s.Undecided == 0},
		{fmt.Sprintf("every guarantee holds: %d checks, %d violated", judged(&verification), violated(&verification)), verification.OK && verification.AtRest},
	}
	return d.conclude(promises)
}

// promise is one line of the end.
type promise struct {
	text string
	kept bool
}

func (d *demo) conclude(promises []promise) error {
	broken := 0
	for _, p := range promises {
		mark := "kept  "
		if !p.kept {
			mark = "BROKEN"
			broken++
		}
		d.sayf("%s  %s", mark, p.text)
	}
	if broken > 0 {
		return no(fmt.Sprintf("%d promises were broken", broken))
	}
	return nil
}

func violated(v *reconcile.Verification) int {
	n := 0
	for _, c := range v.Checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// atRest verifies a sale until it is at rest, bounded, and returns the last look.
func (a *api) atRest(ctx context.Context, saleID string) (reconcile.Verification, error) {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	for {
		v, err := a.verify(ctx, saleID)
		if err == nil && v.AtRest && v.Loaded {
			return v, nil
		}
		pause := time.NewTimer(restPoll)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return v, fmt.Errorf("not at rest within %s: %s: %w", restTimeout, strings.Join(v.Moving, "; "), err)
		}
	}
}

// lostWinners asks for the order of everyone who was told "won", as that user,
// and returns those who do not find it.
func (a *api) lostWinners(ctx context.Context, winners []load.Winner) ([]load.Winner, error) {
	var mu sync.Mutex
	var lost []load.Winner
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(orderLooks)
	for _, w := range winners {
		group.Go(func() error {
			o, err := get[orderView](ctx, a, call{
				method: http.MethodGet, path: []string{"v1", "orders", w.OrderID}, user: w.User, query: url.Values{"wait": {"5s"}},
			})
			if problem, ok := err.(*problem); err != nil && (!ok || problem.Status != http.StatusNotFound) { //nolint:errorlint // do returns it bare
				return err
			}
			if err != nil || o.User != w.User || !o.Status.Live() {
				mu.Lock()
				lost = append(lost, w)
				mu.Unlock()
			}
			return nil
		})
	}
	return lost, group.Wait()
}

// countOrders counts the orders of a sale in the ledger, and the users who have one.
func (a *api) countOrders(ctx context.Context, saleID string) (orders, users int64, err error) {
	all, err := pages[orderView](ctx, a, adminSales(saleID, "orders"), "orders", nil, 0)
	if err != nil {
		return 0, 0, err
	}
	seen := make(map[string]struct{}, len(all))
	for _, o := range all {
		if o.Status.Live() {
			orders++
			seen[o.User] = struct{}{}
		}
	}
	return orders, int64(len(seen)), nil
}
