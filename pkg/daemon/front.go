package daemon

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/doorbuster/doorbuster/pkg/telemetry"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// What clients of a daemon hear that still starts, and when they shall come again.
const (
	startingDetail     = "the service is starting; its /readyz says what it waits for"
	startingRetryAfter = time.Second
)

// front answers requests: until it opens, that the service is starting, because a
// client that heard 404 would not come again; then by the routes of the roles, which
// are all there at once.
type front struct {
	daemon  *Daemon
	counted *telemetry.HTTPMetrics
	opened  chan struct{} // closed by open
	router  atomic.Pointer[web.Router]
}

func newFront(d *Daemon) *front {
	f := &front{daemon: d, counted: telemetry.NewHTTPMetrics(d.Registry), opened: make(chan struct{})}
	starting := f.newRouter()
	starting.Otherwise(web.Unavailable(web.CodeUnavailable, startingDetail, startingRetryAfter))
	f.router.Store(starting)
	return f
}

// newRouter returns a router with the routes that every daemon has.
func (f *front) newRouter() *web.Router {
	d := f.daemon
	router := web.NewRouter(f.counted, d.Log)
	router.Handle("GET /healthz", d.Health.LiveHandler())
	router.Handle("GET /readyz", d.Health.ReadyHandler())
	if d.HTTP.AdminListen == "" {
		router.Handle("GET /metrics", telemetry.MetricsHandler(d.Registry))
	}
	return router
}

// open answers by the routes of the roles from here on.
func (f *front) open(roles []Role) {
	router := f.newRouter()
	for _, role := range roles {
		role.Mount(router)
	}
	f.router.Store(router)
	close(f.opened)
}

func (f *front) isOpen() bool {
	select {
	case <-f.opened:
		return true
	default:
		return false
	}
}

// ServeHTTP answers one request.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.router.Load().ServeHTTP(w, r) }
