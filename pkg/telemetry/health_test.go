package telemetry

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func probe(t *testing.T, handler http.Handler) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func wantProbe(t *testing.T, handler http.Handler, status int, body string) {
	t.Helper()
	if gotStatus, gotBody := probe(t, handler); gotStatus != status || gotBody != body {
		t.Errorf("probe: %d %s\nwant %d %s", gotStatus, gotBody, status, body)
	}
}

func TestReadyNamesEachDependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fault error
		health := NewHealth()
		health.Add("redis", func(context.Context) error { return nil })
		health.Add("nats", func(context.Context) error { return fault })
		wantProbe(t, health.ReadyHandler(), http.StatusOK,
			`{"dependencies":[{"name":"redis","ok":true},{"name":"nats","ok":true}],"status":"ready"}`)

		fault = errors.New("no responders")
		<-time.After(2 * checkMaxAge) // in the bubble's time, which does not wait
		wantProbe(t, health.ReadyHandler(), http.StatusServiceUnavailable,
			`{"dependencies":[{"name":"redis","ok":true},{"name":"nats","ok":false,"error":"no responders"}],"status":"not_ready"}`)
		wantProbe(t, health.LiveHandler(), http.StatusOK, `{"status":"ok"}`)
	})
}

func TestAnOptionalDependencyIsToldOfAndDoesNotDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("connection refused")
		var redis, mysql error = away, nil
		health := NewHealth()
		health.AddOptional("redis", func(context.Context) error { return redis })
		health.Add("mysql", func(context.Context) error { return mysql })
		wantProbe(t, health.ReadyHandler(), http.StatusOK,
			`{"dependencies":[{"name":"redis","ok":false,"required":false,"error":"connection refused"},{"name":"mysql","ok":true}],"status":"ready"}`)

		redis, mysql = nil, away
		<-time.After(2 * checkMaxAge) // in the bubble's time, which does not wait
		wantProbe(t, health.ReadyHandler(), http.StatusServiceUnavailable,
			`{"dependencies":[{"name":"redis","ok":true,"required":false},{"name":"mysql","ok":false,"error":"connection refused"}],"status":"not_ready"}`)
	})
}

func TestAnOptionalDependencyThatHangsKeepsNoProbeWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := NewHealth()
		health.AddOptional("redis", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		wantProbe(t, health.ReadyHandler(), http.StatusOK,
			`{"dependencies":[{"name":"redis","ok":false,"required":false,"error":"context deadline exceeded"}],"status":"ready"}`)
		if took := time.Since(began); took >= time.Second { // what a probe of Kubernetes waits by default
			t.Errorf("the probe took %s", took)
		}
	})
}

func TestAServiceIsReadySoonAfterWhatItWaitsForIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("connection refused")
		health := NewHealth()
		health.Add("mysql", func(context.Context) error { return fault })
		if ready, results := health.Ready(t.Context()); ready {
			t.Errorf("ready without its dependency: %+v", results)
		}
		fault = nil
		<-time.After(unreadyMaxAge)
		if ready, results := health.Ready(t.Context()); !ready {
			t.Errorf("not ready %s after its dependency came back: %+v", unreadyMaxAge, results)
		}
	})
}

func TestDrainingIsNotReadyAndStaysAlive(t *testing.T) {
	health := NewHealth()
	health.Drain()
	wantProbe(t, health.ReadyHandler(), http.StatusServiceUnavailable, `{"dependencies":[],"status":"draining"}`)
	wantProbe(t, health.LiveHandler(), http.StatusOK, `{"status":"ok"}`)
}

func TestManyProbesReachADependencyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0 // guarded by Health, which runs the check once at a time
		health := NewHealth()
		health.Add("redis", func(context.Context) error {
			calls++
			<-time.After(100 * time.Millisecond)
			return nil
		})
		var probes sync.WaitGroup
		for range 50 {
			probes.Go(func() { health.Ready(t.Context()) })
		}
		probes.Wait()
		if calls != 1 {
			t.Errorf("50 probes at once made %d checks, want 1", calls)
		}
		<-time.After(checkMaxAge)
		health.Ready(t.Context())
		if calls != 2 {
			t.Errorf("a probe after the results were too old made %d checks in all, want 2", calls)
		}
	})
}

func TestACheckThatHangsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		health := NewHealth()
		health.Add("mysql", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		start := time.Now()
		ready, results := health.Ready(t.Context())
		if ready || results[0].Error != context.DeadlineExceeded.Error() || time.Since(start) != checkTimeout {
			t.Errorf("ready %t, results %+v after %s", ready, results, time.Since(start))
		}
	})
}

func TestAProbeThatGoesAwayLeavesNoFailure(t *testing.T) {
	health := NewHealth()
	health.Add("nats", func(ctx context.Context) error { return ctx.Err() })
	gone, leave := context.WithCancel(t.Context())
	leave()
	if ready, results := health.Ready(gone); !ready {
		t.Errorf("results: %+v", results)
	}
}
