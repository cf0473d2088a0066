package load

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// Bounds of a run.
const (
	MaxGrabs       = 5_000_000
	MaxConnections = 20_000
	maxRetries     = 1000
)

// Config says what the crowd does. A zero field means its default.
type Config struct {
	// URL is the address of the grab service, http://host:port. It must be a
	// loopback address unless AllowRemote.
	URL         string
	AllowRemote bool
	SaleID      string
	// Lines is what each grab asks for; none is one unit of the sale's only item.
	Lines []sale.Line

	// Users is how many different users there are. Default 1000.
	Users int
	// Grabs is how many grabs there are, each with an idempotency key of its own;
	// grab i is one of user i mod Users. Default Users.
	Grabs int
	// Rate is how many grabs begin per second; 0 is all at once.
	Rate float64
	// Ramp lets the crowd build up: the rate grows evenly from nothing to twice Rate.
	Ramp bool
	// Retries is how often a grab that was not decided is sent again, with the same
	// key. Default 20; -1 is never.
	Retries int
	// Duplicates is the share of grabs, 0 to 1, that are sent twice at the same
	// time with the same key, as by an impatient finger.
	Duplicates float64

	// Connections bounds the requests in flight. Default 512.
	Connections int
	// RequestTimeout bounds one request. Default 10s.
	RequestTimeout time.Duration
	// Timeout bounds the run. Default 2m.
	Timeout time.Duration
	// Seed makes keys, duplicates and the spread of retries repeatable.
	Seed uint64
	// UserPrefix begins the names of the users. Default "user-".
	UserPrefix string
	// Sign tells the service who the user of a request is. Default: header X-User-ID.
	Sign func(r *http.Request, user string)

	// Progress, if set, is called every ProgressEvery (default 100ms) and once at
	// the end. It must not block for long.
	Progress      func(Progress)
	ProgressEvery time.Duration
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Users, 1000)
	setDefault(&c.Grabs, c.Users)
	setDefault(&c.Retries, 20)
	setDefault(&c.Connections, 512)
	setDefault(&c.RequestTimeout, 10*time.Second)
	setDefault(&c.Timeout, 2*time.Minute)
	setDefault(&c.UserPrefix, "user-")
	setDefault(&c.ProgressEvery, 100*time.Millisecond)
	if c.Sign == nil {
		c.Sign = func(r *http.Request, user string) { r.Header.Set(web.UserHeader, user) }
	}
	switch {
	case !sale.ValidID(c.SaleID):
		return c, errors.New("load: the sale's id is missing or malformed")
	case c.Users < 1 || c.Users > MaxGrabs || c.Grabs < 1 || c.Grabs > MaxGrabs:
		return c, fmt.Errorf("load: users and grabs must be 1 to %d", MaxGrabs)
	case math.IsNaN(c.Rate) || c.Rate < 0 || c.Rate > MaxGrabs:
		return c, fmt.Errorf("load: rate must be 0 (all at once) to %d", MaxGrabs)
	case c.Retries < -1 || c.Retries > maxRetries:
		return c, fmt.Errorf("load: retries must be -1 (none) to %d", maxRetries)
	case math.IsNaN(c.Duplicates) || c.Duplicates < 0 || c.Duplicates > 1:
		return c, errors.New("load: duplicates must be 0 to 1")
	case c.Connections < 1 || c.Connections > MaxConnections:
		return c, fmt.Errorf("load: connections must be 1 to %d", MaxConnections)
	case c.RequestTimeout <= 0 || c.Timeout <= 0 || c.ProgressEvery <= 0:
		return c, errors.New("load: timeouts must be positive")
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
