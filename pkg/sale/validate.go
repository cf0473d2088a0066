package sale

import (
	"fmt"
	"regexp"
	"time"
)

// Bounds of what a sale may hold. They keep every number exact in Lua (below
// 2^53), every message below the stream's limit, and every key printable.
const (
	MaxIDLen         = 64
	MaxNameLen       = 200
	MaxSKULen        = 64
	MaxItems         = 1000
	MaxStock         = 1_000_000_000
	MaxPriceCents    = 1_000_000_000_000
	MaxPerUser       = 1_000_000
	MaxQuantity      = 1_000_000
	MaxLimit         = 1_000_000_000_000
	MaxRateLimit     = 1_000_000
	MaxLines         = 50
	MaxOrderIDLen    = MaxIDLen + 1 + 26
	MaxUserLen       = 128
	MaxKeyLen        = 64
	MaxIPLen         = 64
	MaxReasonLen     = 500
	MaxPaymentWindow = 30 * 24 * time.Hour
	MaxWindow        = 10 * 365 * 24 * time.Hour
)

var (
	idPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	skuPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// FieldError says which field of a request is wrong and what is allowed.
type FieldError struct {
	Field   string // path in the request body, e.g. "items[0].stock"
	Message string // what is allowed, e.g. "must be -1 (unlimited) or 0 to 1000000000"
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// ValidID reports whether id can name a sale: 1 to 64 of A-Z a-z 0-9 _ -, the
// first a letter or digit. (It is a NATS subject token and a Redis hash tag.)
func ValidID(id string) bool { return idPattern.MatchString(id) }

// ValidSKU reports whether sku can name an item: 1 to 64 of A-Z a-z 0-9 . _ -,
// the first a letter or digit.
func ValidSKU(sku string) bool { return skuPattern.MatchString(sku) }

// Validate returns a *FieldError for the first field that is out of range.
func (s *Sale) Validate() error {
	if !ValidID(s.ID) {
		return fieldErrorf("id", "must be 1 to %d of A-Z a-z 0-9 _ -, starting with a letter or digit", MaxIDLen)
	}
	if IsQuotaSale(s.ID) {
		return fieldErrorf("id", "must not begin with %s: that is for quotas", QuotaPrefix)
	}
	if s.Name == "" || len(s.Name) > MaxNameLen {
		return fieldErrorf("name", "must be 1 to %d bytes", MaxNameLen)
	}
	if err := s.validateWindow(); err != nil {
		return err
	}
	if s.PerUserLimit < 0 || s.PerUserLimit > MaxPerUser {
		return fieldErrorf("per_user_limit", "must be 0 (no limit) to %d", MaxPerUser)
	}
	if err := s.validate(); err != nil {
		return err
	}
	return validateItems(s.Items)
}

func (s *Sale) validateWindow() error {
	if s.StartsAt.IsZero() {
		return fieldErrorf("starts_at", "is required, RFC 3339")
	}
	if !s.EndsAt.After(s.StartsAt) || s.EndsAt.Sub(s.StartsAt) > MaxWindow {
		return fieldErrorf("ends_at", "must be after starts_at, at most 10 years later")
	}
	if w := time.Duration(s.PaymentWindow); w < time.Second || w > MaxPaymentWindow {
		return fieldErrorf("payment_window", "must be 1s to %s", MaxPaymentWindow)
	}
	return validateTimezone(s.Timezone)
}

func validateTimezone(name string) error {
	if _, err := time.LoadLocation(name); err != nil || name == "Local" || name == "" {
		return fieldErrorf("timezone", "must be an IANA zone name such as UTC or Europe/Berlin")
	}
	return nil
}

func validateItems(items []Item) error {
	if len(items) == 0 || len(items) > MaxItems {
		return fieldErrorf("items", "must hold 1 to %d items", MaxItems)
	}
	seen := make(map[string]bool, len(items))
	for i, it := range items {
		field := func(name string) string { return fmt.Sprintf("items[%d].%s", i, name) }
		switch {
		case !ValidSKU(it.SKU):
			return fieldErrorf(field("sku"), "must be 1 to %d of A-Z a-z 0-9 . _ -, starting with a letter or digit", MaxSKULen)
		case seen[it.SKU]:
			return fieldErrorf(field("sku"), "stands twice in this sale")
		case it.Stock < Unlimited || it.Stock > MaxStock:
			return fieldErrorf(field("stock"), "must be -1 (unlimited) or 0 to %d", MaxStock)
		case it.PriceCents < 0 || it.PriceCents > MaxPriceCents:
			return fieldErrorf(field("price_cents"), "must be 0 to %d", MaxPriceCents)
		}
		seen[it.SKU] = true
	}
	return nil
}

// ValidateLines returns a *FieldError when a grab's lines can't belong to any
// grab of this sale: none, too many, an unknown or repeated SKU, a quantity
// out of range.
func (s *Sale) ValidateLines(lines []Line) error {
	if len(lines) == 0 || len(lines) > MaxLines {
		return fieldErrorf("items", "must hold 1 to %d lines", MaxLines)
	}
	for i, l := range lines {
		if _, ok := s.Item(l.SKU); !ok {
			return fieldErrorf(fmt.Sprintf("items[%d].sku", i), "is not an item of this sale")
		}
		if l.Quantity < 1 || l.Quantity > MaxQuantity {
			return fieldErrorf(fmt.Sprintf("items[%d].quantity", i), "must be 1 to %d", MaxQuantity)
		}
		for _, earlier := range lines[:i] {
			if earlier.SKU == l.SKU {
				return fieldErrorf(fmt.Sprintf("items[%d].sku", i), "stands twice in this grab")
			}
		}
	}
	return nil
}
