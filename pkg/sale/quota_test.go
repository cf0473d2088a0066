package sale_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

func TestAQuotaIsCarriedByASale(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{sale.Unlimited, 0, 1, sale.MaxQuota} {
		q := sale.Quota{Key: strings.Repeat("k", sale.MaxQuotaKeyLen), Limit: limit, Window: sale.WindowMonth, Timezone: "Asia/Tokyo"}
		if err := q.Validate(); err != nil {
			t.Fatal(err)
		}
		s := q.Sale()
		if !sale.ValidID(s.ID) || !sale.IsQuotaSale(s.ID) || s.Phase(time.Now()) != sale.PhaseOpen {
			t.Errorf("the sale of %v is %v", q, s)
		}
		back, err := sale.QuotaOf(&s)
		if err != nil || back != q {
			t.Errorf("quota %v came back as %v, %v", q, back, err)
		}
		s.SetQuota(7)
		if back, err = sale.QuotaOf(&s); err != nil || back.Limit != 7 {
			t.Errorf("a limit of 7 came back as %d, %v", back.Limit, err)
		}
	}
	if _, err := sale.QuotaOf(&sale.Sale{ID: "quota_by_name"}); err == nil {
		t.Error("an ordinary sale was taken for a quota")
	}
}

func TestAQuotaOutOfRangeIsRefused(t *testing.T) {
	t.Parallel()
	for field, q := range map[string]sale.Quota{
		"key":      {Key: "a b", Limit: 1, Window: sale.WindowDay, Timezone: "UTC"},
		"limit":    {Key: "k", Limit: -2, Window: sale.WindowDay, Timezone: "UTC"},
		"window":   {Key: "k", Limit: 1, Window: sale.WindowSale, Timezone: "UTC"},
		"timezone": {Key: "k", Limit: 1, Window: sale.WindowDay, Timezone: "Local"},
	} {
		err := q.Validate()
		if wrong, ok := errors.AsType[*sale.FieldError](err); !ok || wrong.Field != field {
			t.Errorf("%v was refused with %v, want field %s", q, err, field)
		}
	}
	for _, key := range []string{"", "a.b", "a/b", strings.Repeat("k", sale.MaxQuotaKeyLen+1)} {
		if sale.ValidQuotaKey(key) {
			t.Errorf("%q was taken for a key", key)
		}
	}
}

func TestWhatAQuotaHasLeftIsNeverNegative(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ most, used, left int64 }{
		{10, 3, 7}, {10, 10, 0}, {2, 10, 0}, {sale.MaxLimit, 5, sale.Unlimited}, {0, 0, 0},
	} {
		if left := sale.QuotaRemaining(c.most, c.used); left != c.left {
			t.Errorf("%d of %d used leaves %d, want %d", c.used, c.most, left, c.left)
		}
	}
}
