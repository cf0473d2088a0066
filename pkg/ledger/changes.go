package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
)

// Cause is who decides a change, and why.
type Cause struct{ Actor, Reason string }

// Change is one line of the history of a sale's definition. A draft has none: nothing
// was sold by it.
type Change struct {
	Seq    int64  `json:"seq"` // grows with every change in the ledger; the page cursor
	SaleID string `json:"sale_id"`
	// Field is a field of the sale, "limits.NAME.max" for the maximum of a limit, or
	// "items.SKU.stock" for the whole stock of an item, -1 being unlimited.
	Field string `json:"field"`
	// Old and New are written as in the API's JSON, without quotes.
	Old    string    `json:"old"`
	New    string    `json:"new"`
	Reason string    `json:"reason"`
	Actor  string    `json:"actor"`
	At     time.Time `json:"at"`
}

// Names of fields in the history.
const (
	fieldStatus  = "status"
	fieldPerUser = "per_user_limit"
	fieldRegrab  = "regrab_after_cancel"
)

func fieldMax(l sale.Limit) string    { return "limits." + l.Name() + ".max" }
func fieldStock(item *itemRow) string { return "items." + item.SKU + ".stock" }

// maxValue is the most characters of a value in the history; see schema.sql.
const maxValue = 2000

func newChange(saleID, field, from, to string, by Cause, at time.Time) changeRow {
	return changeRow{
		SaleID: saleID, Field: field, OldValue: fit(from, maxValue), NewValue: fit(to, maxValue),
		Reason: fit(by.Reason, sale.MaxReasonLen), Actor: fit(by.Actor, maxActor), At: at,
	}
}

// changesOf compares two states of a sale, besides its items.
func changesOf(before, after *sale.Sale, by Cause) ([]changeRow, error) {
	at := now()
	var rows []changeRow
	note := func(field, from, to string) {
		if from != to {
			rows = append(rows, newChange(after.ID, field, from, to, by, at))
		}
	}
	note(fieldStatus, string(before.Status), string(after.Status))
	if before.Status == sale.StatusDraft {
		return rows, nil
	}
	instant := func(t time.Time) string { return stored(t).Format(time.RFC3339Nano) }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	note("name", before.Name, after.Name)
	note("starts_at", instant(before.StartsAt), instant(after.StartsAt))
	note("ends_at", instant(before.EndsAt), instant(after.EndsAt))
	note("payment_window", time.Duration(before.PaymentWindow).String(), time.Duration(after.PaymentWindow).String())
	note("timezone", before.Timezone, after.Timezone)
	note(fieldPerUser, number(before.PerUserLimit), number(after.PerUserLimit))
	for _, l := range after.Limits {
		for _, was := range before.Limits {
			if was.Name() == l.Name() {
				note(fieldMax(l), number(was.Max), number(l.Max))
			}
		}
	}
	note("rate_limit", number(before.RateLimit), number(after.RateLimit))
	note(fieldRegrab, strconv.FormatBool(!before.NoRegrab), strconv.FormatBool(!after.NoRegrab))
	from, err := json.Marshal(before.Fulfilment)
	if err != nil {
		return nil, fmt.Errorf("encode fulfilment of sale %s: %w", before.ID, err)
	}
	to, err := json.Marshal(after.Fulfilment)
	if err != nil {
		return nil, fmt.Errorf("encode fulfilment of sale %s: %w", after.ID, err)
	}
	note("fulfilment", string(from), string(to))
	return rows, nil
}

// writeChanges writes what differs between two states of a sale.
func (l *Ledger) writeChanges(tx *gorm.DB, before, after *sale.Sale, by Cause) error {
	rows, err := changesOf(before, after, by)
	if err != nil {
		return err
	}
	if err := insert(tx, rows, l.cfg.InsertRows); err != nil {
		return fmt.Errorf("write changes of sale %s: %w", after.ID, err)
	}
	return nil
}

// ListChanges returns the changes of a sale with a Seq above after, oldest first,
// at most limit (1 to PageMax).
func (l *Ledger) ListChanges(ctx context.Context, saleID string, after int64, limit int) ([]Change, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	var rows []changeRow
	err := l.read.WithContext(ctx).Where("sale_id = ? AND seq > ?", saleID, after).Order("seq").Limit(limit).Find(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("list changes of sale %s: %w", saleID, err)
	}
	changes := make([]Change, len(rows))
	for i, r := range rows {
		changes[i] = Change{
			Seq: r.Seq, SaleID: r.SaleID, Field: r.Field, Old: r.OldValue, New: r.NewValue, Reason: r.Reason, Actor: r.Actor, At: r.At,
		}
	}
	return changes, nil
}

// highest is the most a sale ever allowed since it was approved, and whether what
// came back ever stayed counted against its user.
type highest struct {
	perUser  int64 // 0 when there was, at any time, no limit
	max      map[string]int64
	noRegrab bool
}

// HighestLimits returns the most that a sale ever allowed since it was approved:
// of the units per user, 0 when there was no limit at any time, and of each limit by
// its name. Nothing is taken back when a limit is lowered, so this is what holds of
// what users have. It answers ErrNotFound.
func (l *Ledger) HighestLimits(ctx context.Context, saleID string) (perUser int64, byLimit map[string]int64, err error) {
	var h highest
	err = l.consistent(ctx, func(tx *gorm.DB) error {
		row, err := take[saleRow](tx.Where("id = ?", saleID))
		if err != nil {
			return err
		}
		s, err := row.sale(nil)
		if err != nil {
			return err
		}
		h, err = highestOf(tx, &s)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("highest limits of sale %s: %w", saleID, err)
	}
	return h.perUser, h.max, nil
}

// highestOf goes through the history of a sale, which is as it is now.
func highestOf(tx *gorm.DB, s *sale.Sale) (highest, error) {
	h := highest{perUser: s.PerUserLimit, max: make(map[string]int64, len(s.Limits)), noRegrab: s.NoRegrab}
	names := make(map[string]string, len(s.Limits))
	for _, l := range s.Limits {
		h.max[l.Name()], names[fieldMax(l)] = l.Max, l.Name()
	}
	query := tx.Model(&changeRow{}).Select("field", "old_value", "new_value").
		Where("sale_id = ? AND (field IN ? OR field LIKE 'limits.%')", s.ID, []string{fieldPerUser, fieldRegrab})
	err := eachRow(query, func(scan scanner) error {
		var field string
		var values [2]string
		if err := scan(&field, &values[0], &values[1]); err != nil {
			return err
		}
		for _, value := range values {
			if err := h.take(field, value, names[field]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return highest{}, fmt.Errorf("read changes of sale %s: %w", s.ID, err)
	}
	return h, nil
}

// take adds a value that a field had; limit is the name when it is a limit's.
func (h *highest) take(field, value, limit string) error {
	if field == fieldRegrab {
		h.noRegrab = h.noRegrab || value == "false"
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("change of %s: %w", field, err)
	case limit != "":
		h.max[limit] = max(h.max[limit], n)
	case field == fieldPerUser && (n == 0 || h.perUser == 0):
		h.perUser = 0
	case field == fieldPerUser:
		h.perUser = max(h.perUser, n)
	}
	return nil
}
