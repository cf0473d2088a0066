package grab

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/stream"
)

// The policies of a process that may slow a grab down; see PolicySale. They stand
// in the RateLimit headers and in the problem.
const (
	PolicyUser = "user" // the grabs of one user
	PolicyIP   = "ip"   // the grabs from one client address
)

// The headers of draft-ietf-httpapi-ratelimit-headers-10, as net/http spells them: what
// a policy allows (q units in w seconds), and what is left of it (r units, more in t seconds).
var (
	rateLimitPolicyKey = http.CanonicalHeaderKey("RateLimit-Policy")
	rateLimitKey       = http.CanonicalHeaderKey("RateLimit")
)

// flow is what slows the grabs of this process down. It is never changed once it
// is in force.
type flow struct {
	user, ip *limit
	policies []string // the value of RateLimit-Policy; nil without limits
}

func newFlow(user, ip *limit) *flow {
	f := &flow{user: user, ip: ip}
	var text []byte
	if user != nil {
		text = appendPolicy(text, PolicyUser, user)
	}
	if ip != nil {
		text = appendPolicy(text, PolicyIP, ip)
	}
	if text != nil {
		f.policies = []string{string(text)}
	}
	return f
}

// appendPolicy appends an item of RateLimit-Policy: a burst, and the seconds in
// which all of it comes back.
func appendPolicy(b []byte, name string, l *limit) []byte {
	b = appendName(b, name)
	b = append(b, ";q="...)
	b = strconv.AppendInt(b, int64(l.burst), 10)
	b = append(b, ";w="...)
	return strconv.AppendInt(b, max(seconds(l.until(l.burst, 0)), 1), 10)
}

// appendService appends an item of RateLimit.
func appendService(b []byte, name string, a allowance) []byte {
	b = appendName(b, name)
	b = append(b, ";r="...)
	b = strconv.AppendInt(b, a.left, 10)
	if a.next > 0 {
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, seconds(a.next), 10)
	}
	return b
}

func appendName(b []byte, name string) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"')
}

// seconds rounds up: whoever comes back then comes in time.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// admission is what the policies of this process say of one grab.
type admission struct {
	flow     *flow
	user, ip allowance
	byIP     bool   // there was an address to ask about
	refuses  string // the policy that refuses, "" for none
}

// admit takes a token of the user's and one of the address's, both or none.
func (s *Service) admit(user, ip string) admission {
	a := admission{flow: s.flow.Load()}
	if a.flow.policies == nil {
		return a
	}
	now := time.Now()
	whose := uint64(0)
	if a.flow.user != nil {
		whose = s.users.user(user)
		if a.user = s.users.take(a.flow.user, whose, now); !a.user.ok {
			a.refuses = PolicyUser
			return a
		}
	}
	if a.byIP = a.flow.ip != nil && ip != ""; a.byIP {
		if a.ip = s.addresses.take(a.flow.ip, s.addresses.address(ip), now); !a.ip.ok {
			a.refuses = PolicyIP
			if a.flow.user != nil {
				s.users.giveBack(a.flow.user, whose)
			}
		}
	}
	return a
}

// answer is that of a grab which was refused.
func (a *admission) answer() Answer {
	wait := a.user.next
	if a.refuses == PolicyIP {
		wait = a.ip.next
	}
	return Answer{Outcome: sale.RateLimited, Policy: a.refuses, Retry: wait}
}

// describe tells the caller where it stands. Of a refused grab it names the
// refusing policy alone, so that Retry-After and t agree.
func (a *admission) describe(header http.Header) {
	if a.flow.policies == nil {
		return
	}
	header[rateLimitPolicyKey] = a.flow.policies
	buffer := make([]byte, 0, 64)
	if a.flow.user != nil && a.refuses != PolicyIP {
		buffer = appendService(buffer, PolicyUser, a.user)
	}
	if a.byIP && a.refuses != PolicyUser {
		buffer = appendService(buffer, PolicyIP, a.ip)
	}
	if len(buffer) > 0 {
		header[rateLimitKey] = []string{string(buffer)}
	}
}

// describeSale tells of the sale's own rate, which refused.
func (s *Service) describeSale(header http.Header, saleID string, wait time.Duration) {
	def, known := s.engine.Sale(saleID)
	if !known || def.RateLimit == 0 {
		return // it was changed since
	}
	all := &limit{perSecond: float64(def.RateLimit), burst: float64(def.RateLimit)}
	header.Add(rateLimitPolicyKey, string(appendPolicy(nil, PolicySale, all)))
	header[rateLimitKey] = []string{string(appendService(nil, PolicySale, allowance{next: max(wait, time.Second)}))}
}

// obey puts a flow control in force; what it leaves open is what the process was
// configured with.
func (s *Service) obey(f stream.FlowControl, revision uint64) {
	user := newLimit(s.tuning.UserRate, int64(s.tuning.UserBurst))
	if f.PerUser != nil {
		user = newLimit(f.PerUser.Rate, f.PerUser.Burst)
	}
	ip := newLimit(s.tuning.IPRate, int64(s.tuning.IPBurst))
	if f.PerIP != nil {
		ip = newLimit(f.PerIP.Rate, f.PerIP.Burst)
	}
	most := s.engine.cfg.InFlightMax
	if f.InFlightMax != nil {
		most = *f.InFlightMax
	}
	s.flow.Store(newFlow(user, ip))
	s.engine.SetInFlightMax(most)
	if user == nil {
		s.users.forget()
	}
	if ip == nil {
		s.addresses.forget()
	}
	s.metrics.FlowRevision.Set(float64(revision))
	if was := s.revision.Swap(revision); was != revision {
		s.log.Info("flow control in force", "revision", revision, "user", show(user), "ip", show(ip), "in_flight_max", most)
	}
}

// show is a limit as the command line writes it.
func show(l *limit) string {
	if l == nil {
		return "off"
	}
	return strconv.FormatFloat(l.perSecond, 'g', -1, 64) + ":" + strconv.FormatInt(int64(l.burst), 10)
}
