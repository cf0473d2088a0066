package sale

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// LimitScope is whose units a limit counts.
type LimitScope string

// The scopes of a limit.
const (
	ScopeUser LimitScope = "user" // each user's
	ScopeIP   LimitScope = "ip"   // each client address's; for IPv6 each /64
	ScopeSale LimitScope = "sale" // everybody's together
)

// LimitWindow is the calendar window a limit counts in, in the sale's timezone.
type LimitWindow string

// The windows of a limit.
const (
	WindowSale  LimitWindow = "sale" // the whole sale
	WindowDay   LimitWindow = "day"
	WindowMonth LimitWindow = "month"
	WindowYear  LimitWindow = "year"
)

// Limit is the most units that may be granted to one subject in one window. Units
// are counted upward, in the window of the moment they were granted in, and
// counted down when they come back; Max may change without touching a count.
type Limit struct {
	Scope  LimitScope  `json:"scope"`
	Window LimitWindow `json:"window"`
	Max    int64       `json:"max"` // units, 0 to MaxLimit
}

// Name names a limit in answers and counters, such as "user_day".
func (l Limit) Name() string { return string(l.Scope) + "_" + string(l.Window) }

// Subject is whose count a grant adds to: the user, the address, or "" for all.
func (l Limit) Subject(g *Grant) string {
	switch l.Scope {
	case ScopeUser:
		return g.User
	case ScopeIP:
		return addressGroup(g.IP)
	default:
		return ""
	}
}

// addressGroup is what one client is likely to own: an IPv4 address, or the /64
// of an IPv6 one. What is no address stands for itself.
func addressGroup(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	group, _ := addr.Prefix(64) // 64 is always a valid length here
	return group.String()
}

// Period names the window that holds at, in the sale's timezone: "2026-11-21",
// "2026-11", "2026", or "" for the whole sale.
func (w LimitWindow) Period(at time.Time, zone *time.Location) string {
	switch w {
	case WindowDay:
		return at.In(zone).Format("2006-01-02")
	case WindowMonth:
		return at.In(zone).Format("2006-01")
	case WindowYear:
		return at.In(zone).Format("2006")
	default:
		return ""
	}
}

// Start is the first moment of the window that holds at. The zero time is ever.
func (w LimitWindow) Start(at time.Time, zone *time.Location) time.Time {
	year, month, day := at.In(zone).Date()
	switch w {
	case WindowDay:
		return firstMoment(year, month, day, zone)
	case WindowMonth:
		return firstMoment(year, month, 1, zone)
	case WindowYear:
		return firstMoment(year, time.January, 1, zone)
	default:
		return time.Time{}
	}
}

// End is when the window that holds at ends: the first moment of the next one.
// The zero time is never.
func (w LimitWindow) End(at time.Time, zone *time.Location) time.Time {
	year, month, day := at.In(zone).Date()
	switch w {
	case WindowDay:
		return firstMoment(year, month, day+1, zone)
	case WindowMonth:
		return firstMoment(year, month+1, 1, zone)
	case WindowYear:
		return firstMoment(year+1, time.January, 1, zone)
	default:
		return time.Time{}
	}
}

// firstMoment is the first moment of a day. Where the clocks are put forward at
// midnight, time.Date answers with the hour before: the day begins after the gap.
func firstMoment(year int, month time.Month, day int, zone *time.Location) time.Time {
	at := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if want := time.Date(year, month, day, 12, 0, 0, 0, zone).Day(); at.Day() != want {
		_, end := at.ZoneBounds()
		return end
	}
	return at
}

// Count is one counter that a grant adds its units to.
type Count struct {
	Limit   Limit
	Period  string
	Subject string
}

// Counts lists the counters of the sale's limits that a grant adds to, in the
// order of the limits. An adjustment adds to none.
func (s *Sale) Counts(g *Grant) []Count {
	if g.Kind == GrantAdjust || len(s.Limits) == 0 {
		return nil
	}
	counts := make([]Count, len(s.Limits))
	for i, l := range s.Limits {
		counts[i] = Count{Limit: l, Period: l.Window.Period(g.At, s.Location()), Subject: l.Subject(g)}
	}
	return counts
}

// locations keeps the zones that were asked for: loading one reads a file.
var locations sync.Map // name -> *time.Location

// Location is the sale's timezone; UTC for a name that Validate would refuse.
func (s *Sale) Location() *time.Location {
	if known, ok := locations.Load(s.Timezone); ok {
		return known.(*time.Location)
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return time.UTC
	}
	locations.Store(s.Timezone, zone)
	return zone
}

func validateLimits(limits []Limit) error {
	seen := make(map[string]bool, len(limits))
	for i, l := range limits {
		field := func(name string) string { return fmt.Sprintf("limits[%d].%s", i, name) }
		switch l.Scope {
		case ScopeUser, ScopeIP, ScopeSale:
		default:
			return fieldErrorf(field("scope"), "must be user, ip or sale")
		}
		switch l.Window {
		case WindowSale, WindowDay, WindowMonth, WindowYear:
		default:
			return fieldErrorf(field("window"), "must be sale, day, month or year")
		}
		if l.Max < 0 || l.Max > MaxLimit {
			return fieldErrorf(field("max"), "must be 0 to %d", MaxLimit)
		}
		if seen[l.Name()] {
			return fieldErrorf(fmt.Sprintf("limits[%d]", i), "scope %s and window %s stand twice", l.Scope, l.Window)
		}
		seen[l.Name()] = true
	}
	return nil
}

// FulfilmentTrigger is when the shop's system is called for an order.
type FulfilmentTrigger string

// The triggers of a fulfilment.
const (
	FulfilCreated FulfilmentTrigger = "created"
	FulfilPaid    FulfilmentTrigger = "paid"
)

// FulfilmentFailure is what becomes of an order that could not be fulfilled in time.
type FulfilmentFailure string

// The ends of a failed fulfilment.
const (
	// FailureRollback rejects the order and gives its stock back.
	FailureRollback FulfilmentFailure = "rollback"
	// FailurePark leaves the order to an operator.
	FailurePark FulfilmentFailure = "park"
)

// Fulfilment says how the shop's system is called for each order of a sale.
type Fulfilment struct {
	URL         string            `json:"url"` // http or https, of printable ASCII without spaces
	Trigger     FulfilmentTrigger `json:"trigger"`
	GiveUpAfter Duration          `json:"give_up_after"` // since the first attempt was due
	OnFailure   FulfilmentFailure `json:"on_failure"`
}

// Bounds of a fulfilment's patience and address.
const (
	MinGiveUpAfter      = time.Second
	MaxGiveUpAfter      = 30 * 24 * time.Hour
	MaxFulfilmentURLLen = 2000
)

func (f *Fulfilment) validate() error {
	if f == nil {
		return nil
	}
	target, err := url.Parse(f.URL)
	if err != nil || len(f.URL) > MaxFulfilmentURLLen || (target.Scheme != "http" && target.Scheme != "https") || target.Host == "" || target.User != nil {
		return fieldErrorf("fulfilment.url", "must be an http or https URL without credentials, at most %d bytes", MaxFulfilmentURLLen)
	}
	if strings.ContainsFunc(f.URL, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fieldErrorf("fulfilment.url", "must be of printable ASCII without spaces: percent-encode a path or query, write a host in punycode")
	}
	if f.Trigger != FulfilCreated && f.Trigger != FulfilPaid {
		return fieldErrorf("fulfilment.trigger", "must be created or paid")
	}
	if d := time.Duration(f.GiveUpAfter); d < MinGiveUpAfter || d > MaxGiveUpAfter {
		return fieldErrorf("fulfilment.give_up_after", "must be %s to %s", MinGiveUpAfter, MaxGiveUpAfter)
	}
	if f.OnFailure != FailureRollback && f.OnFailure != FailurePark {
		return fieldErrorf("fulfilment.on_failure", "must be rollback or park")
	}
	return nil
}
