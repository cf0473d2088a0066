package sale

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A quota is a standing limit without a sale: so many units per calendar window,
// deducted by backends. It is carried by a sale of its own, so that what holds for
// grabs holds for deductions: one item without a bound on its stock, and one limit of
// scope sale that counts. Every deduction is a grab of QuotaUser, and an order that
// is fulfilled as soon as it is written.

// What the sale of a quota is made of.
const (
	// QuotaPrefix begins the id of a quota's sale, and of no other.
	QuotaPrefix = "quota_"
	// QuotaSKU is the only item.
	QuotaSKU = "unit"
	// QuotaUser is who deducts. The space keeps it from being anybody's name.
	QuotaUser = "quota backend"
	// MaxQuotaKeyLen is the most bytes of a quota's key.
	MaxQuotaKeyLen = 57
	// MaxQuota is the highest limit of a quota; the number above it counts for Unlimited.
	MaxQuota = MaxLimit - 1
)

// quotaStarts and quotaEnds are the window of a quota's sale: it is always open.
var (
	quotaStarts = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	quotaEnds   = time.Date(9000, time.January, 1, 0, 0, 0, 0, time.UTC)
)

var quotaKeyPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,57}$`)

// Quota is at most Limit units per window.
type Quota struct {
	Key      string      `json:"key"`
	Limit    int64       `json:"limit"`    // units, 0 to MaxQuota; Unlimited still counts
	Window   LimitWindow `json:"window"`   // day, month or year
	Timezone string      `json:"timezone"` // where the windows begin and end
}

// ValidQuotaKey reports whether key can name a quota: 1 to 57 of A-Z a-z 0-9 _ -.
func ValidQuotaKey(key string) bool { return quotaKeyPattern.MatchString(key) }

// QuotaSaleID is the id of the sale that carries a quota.
func QuotaSaleID(key string) string { return QuotaPrefix + key }

// IsQuotaSale reports whether a sale's id is that of a quota.
func IsQuotaSale(saleID string) bool { return strings.HasPrefix(saleID, QuotaPrefix) }

// Validate returns a *FieldError for the first field that is out of range.
func (q *Quota) Validate() error {
	switch {
	case !ValidQuotaKey(q.Key):
		return fieldErrorf("key", "must be 1 to %d of A-Z a-z 0-9 _ -", MaxQuotaKeyLen)
	case q.Limit < Unlimited || q.Limit > MaxQuota:
		return fieldErrorf("limit", "must be -1 (unlimited) or 0 to %d", int64(MaxQuota))
	case q.Window != WindowDay && q.Window != WindowMonth && q.Window != WindowYear:
		return fieldErrorf("window", "must be day, month or year")
	}
	return validateTimezone(q.Timezone)
}

// Sale is the sale that carries the quota.
func (q *Quota) Sale() Sale {
	return Sale{
		ID: QuotaSaleID(q.Key), Name: q.Key, Status: StatusApproved, StartsAt: quotaStarts, EndsAt: quotaEnds,
		// What came back frees the counter; nobody's units are counted.
		PaymentWindow: Duration(time.Second), Timezone: q.Timezone, Items: []Item{{SKU: QuotaSKU, Stock: Unlimited}},
		Rules: Rules{Quota: true, NoRegrab: true, Limits: []Limit{{Scope: ScopeSale, Window: q.Window, Max: quotaMax(q.Limit)}}},
	}
}

// QuotaOf returns the quota that a sale carries, or an error where it carries none.
func QuotaOf(s *Sale) (Quota, error) {
	key, named := strings.CutPrefix(s.ID, QuotaPrefix)
	if !named || !s.Quota || len(s.Limits) != 1 {
		return Quota{}, fmt.Errorf("sale %s carries no quota", s.ID)
	}
	return Quota{Key: key, Limit: QuotaLimit(s.Limits[0].Max), Window: s.Limits[0].Window, Timezone: s.Timezone}, nil
}

// SetQuota changes the limit of the quota that a sale carries.
func (s *Sale) SetQuota(limit int64) { s.Limits[0].Max = quotaMax(limit) }

// quotaMax is the maximum that stands for a quota's limit. One without a bound goes on
// counting, so that a later bound finds what was used.
func quotaMax(limit int64) int64 {
	if limit == Unlimited {
		return MaxLimit
	}
	return limit
}

// QuotaLimit is the limit of a quota that a maximum stands for.
func QuotaLimit(most int64) int64 {
	if most >= MaxLimit {
		return Unlimited
	}
	return most
}

// QuotaRemaining is what a quota with this maximum has left when so many units are
// used: never below zero, and Unlimited without a bound.
func QuotaRemaining(most, used int64) int64 {
	if QuotaLimit(most) == Unlimited {
		return Unlimited
	}
	return max(most-used, 0)
}
