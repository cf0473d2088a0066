package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/load"
	"github.com/prometheus/client_golang/prometheus"
)

// storm is what the crowd of a demonstration was told, and when it was broken.
type storm struct {
	load.Report

	wipedAt   time.Time // zero when it was not
	wonBefore int64
	wipeTook  time.Duration
	stoodFor  time.Duration // the longest time without a win since
}

// progressEvery is how often the crowd is looked at, so that the wipe comes in time.
const progressEvery = 10 * time.Millisecond

// showEvery is how often the line changes that a person looks at.
const showEvery = 100 * time.Millisecond

// storm sends the crowd, and wipes Redis when half of the stock is sold.
func (d *demo) storm(ctx context.Context) (*storm, error) {
	s := &storm{}
	screen := newLive(d.term.out)
	watch := d.watch(ctx)
	var breaking sync.WaitGroup
	var broken error
	var shown time.Time
	report, err := load.Run(ctx, load.Config{
		URL: d.api.base, SaleID: demoSale, Users: d.Users, Rate: d.Rate, Ramp: true,
		Duplicates: 0.05, Retries: 50, Connections: 256, Timeout: 2 * time.Minute, Seed: uint64(time.Now().UnixNano()),
		ProgressEvery: progressEvery,
		Progress: func(p load.Progress) {
			if s.wipedAt.IsZero() && p.Won >= d.Units/2 && p.Won < d.Units {
				s.wipedAt, s.wonBefore = time.Now(), p.Won
				screen.note(fmt.Sprintf("%*s %4.1fs  Redis loses everything: %s", barWidth+2, "", p.Elapsed.Seconds(), d.stage.what()))
				breaking.Go(func() {
					broken = d.stage.wipe()
					s.wipeTook = time.Since(s.wipedAt)
				})
			}
			if time.Since(shown) >= showEvery || p.Decided == int64(p.Grabs) {
				shown = time.Now()
				screen.show(d.progress(p, watch.state()))
			}
		},
	})
	breaking.Wait()
	watch.stop()
	screen.end()
	switch {
	case err != nil:
		return nil, err
	case broken != nil:
		return nil, broken
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.wipedAt.IsZero():
		return nil, errors.New("redis was not wiped: the stock was sold too fast; try a smaller --rate")
	}
	s.Report = report
	s.stoodFor = report.LongestPause(s.wipedAt)
	return s, nil
}

// progress is the line that the crowd's progress is shown on.
func (d *demo) progress(p load.Progress, state string) string {
	queue, lag := d.gauge("doorbuster_grab_queue_depth"), d.gauge("doorbuster_order_stream_lag")
	return fmt.Sprintf("%s %4.1fs  sold %d/%d  refused %d  told to come again %d  queue %.0f  order lag %.0f  %s",
		bar(p.Won, d.Units), p.Elapsed.Seconds(), p.Won, d.Units, p.Refused, p.Turned+p.Failed, queue, lag, state)
}

// gauge reads one metric of the instance.
func (d *demo) gauge(name string) float64 {
	families, err := prometheus.Gatherer(d.shop.daemon.Registry).Gather()
	if err != nil {
		return 0
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// stateWatch looks at the sale's state in Redis from time to time.
type stateWatch struct {
	cancel context.CancelFunc
	work   sync.WaitGroup
	mu     sync.Mutex
	text   string
}

// stateEvery is how often the sale's state is looked at.
const stateEvery = 50 * time.Millisecond

func (d *demo) watch(ctx context.Context) *stateWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &stateWatch{cancel: cancel}
	w.work.Go(func() {
		tick := time.NewTicker(stateEvery)
		defer tick.Stop()
		for {
			v, err := get[saleView](ctx, d.api, call{method: http.MethodGet, path: adminSales(demoSale)})
			if err == nil {
				w.set(v)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return w
}

func (w *stateWatch) set(v saleView) {
	text := fmt.Sprintf("generation %d", v.Generation)
	if v.State != "loaded" {
		text = "RECOVERING (" + v.Reason + ")"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = text
}

func (w *stateWatch) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

func (w *stateWatch) stop() {
	w.cancel()
	w.work.Wait()
}
