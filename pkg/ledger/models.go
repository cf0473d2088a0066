package ledger

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// The rows of the tables; schema.sql says what each column means. Times are
// set by hand, never by GORM.

type model interface{ TableName() string }

// models lists a row of each table, in the order of schema.sql.
func models() []model {
	return []model{
		schemaVersionRow{}, saleRow{}, itemRow{}, orderRow{}, counterRow{}, flowRow{}, givebackRow{}, progressRow{}, deadLetterRow{},
		eventRow{}, deliveryRow{}, changeRow{},
	}
}

type schemaVersionRow struct {
	Version     int       `gorm:"column:version;type:int;primaryKey;autoIncrement:false"`
	Fingerprint string    `gorm:"column:fingerprint;type:varchar(64);not null"`
	AppliedAt   time.Time `gorm:"column:applied_at;type:datetime(3);not null"`
}

func (schemaVersionRow) TableName() string { return "schema_version" }

type saleRow struct {
	ID              string      `gorm:"column:id;type:varchar(64);primaryKey"`
	Name            string      `gorm:"column:name;type:varchar(200);not null"`
	Status          sale.Status `gorm:"column:status;type:varchar(16);not null"`
	StartsAt        time.Time   `gorm:"column:starts_at;type:datetime(3);not null"`
	EndsAt          time.Time   `gorm:"column:ends_at;type:datetime(3);not null"`
	PaymentWindowMS int64       `gorm:"column:payment_window_ms;type:bigint;not null"`
	PerUserLimit    int64       `gorm:"column:per_user_limit;type:bigint;not null"`
	Timezone        string      `gorm:"column:timezone;type:varchar(64);not null"`
	Rules           string      `gorm:"column:rules;type:text;not null"`
	Revision        int64       `gorm:"column:revision;type:bigint;not null"`
	Generation      int64       `gorm:"column:generation;type:bigint;not null"`
	CreatedAt       time.Time   `gorm:"column:created_at;type:datetime(3);not null;autoCreateTime:false"`
	UpdatedAt       time.Time   `gorm:"column:updated_at;type:datetime(3);not null;autoUpdateTime:false"`
}

func (saleRow) TableName() string { return "sales" }

type itemRow struct {
	SaleID     string `gorm:"column:sale_id;type:varchar(64);primaryKey"`
	SKU        string `gorm:"column:sku;type:varchar(64);primaryKey"`
	Position   int    `gorm:"column:position;type:int;not null"`
	Stock      int64  `gorm:"column:stock;type:bigint;not null"`
	Granted    int64  `gorm:"column:granted;type:bigint;not null"`
	Sold       int64  `gorm:"column:sold;type:bigint;not null"`
	PriceCents int64  `gorm:"column:price_cents;type:bigint;not null"`
}

func (itemRow) TableName() string { return "items" }

func (r *itemRow) unlimited() bool { return r.Stock == sale.Unlimited }

// remaining is what the flows count: for unlimited stock from zero downwards.
func (r *itemRow) remaining() int64 {
	if r.unlimited() {
		return -r.Sold
	}
	return r.Stock - r.Sold
}

type orderRow struct {
	ID             string           `gorm:"column:id;type:varchar(91);primaryKey"`
	SaleID         string           `gorm:"column:sale_id;type:varchar(64);not null;index:orders_by_user,priority:1;index:orders_by_created,priority:1"`
	UserID         string           `gorm:"column:user_id;type:varchar(128);not null;index:orders_by_user,priority:2"`
	IdempotencyKey string           `gorm:"column:idempotency_key;type:varchar(64);not null"`
	IP             string           `gorm:"column:ip;type:varchar(64);not null"`
	Status         sale.OrderStatus `gorm:"column:status;type:varchar(16);not null;index:orders_by_expiry,priority:1"`
	Items          string           `gorm:"column:items;type:text;not null"`
	Generation     int64            `gorm:"column:generation;type:bigint;not null"`
	CreatedAt      time.Time        `gorm:"column:created_at;type:datetime(3);not null;autoCreateTime:false;index:orders_by_created,priority:2"`
	ExpiresAt      sql.NullTime     `gorm:"column:expires_at;type:datetime(3);index:orders_by_expiry,priority:2"`
	Reason         string           `gorm:"column:reason;type:varchar(64);not null"`
	LatePaymentAt  sql.NullTime     `gorm:"column:late_payment_at;type:datetime(3)"`
	UpdatedAt      time.Time        `gorm:"column:updated_at;type:datetime(3);not null;autoUpdateTime:false"`
}

func (orderRow) TableName() string { return "orders" }

func (r *orderRow) order() (sale.Order, error) {
	o := sale.Order{
		ID: r.ID, SaleID: r.SaleID, User: r.UserID, Status: r.Status, Key: r.IdempotencyKey, IP: r.IP,
		Generation: r.Generation, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ExpiresAt: r.ExpiresAt.Time, Reason: r.Reason,
		LatePaymentAt: r.LatePaymentAt.Time,
	}
	if err := json.Unmarshal([]byte(r.Items), &o.Lines); err != nil {
		return sale.Order{}, fmt.Errorf("items of order %s: %w", r.ID, err)
	}
	return o, nil
}

type counterRow struct {
	SaleID    string `gorm:"column:sale_id;type:varchar(64);primaryKey"`
	LimitName string `gorm:"column:limit_name;type:varchar(16);primaryKey"`
	Period    string `gorm:"column:period;type:varchar(10);primaryKey"`
	Subject   string `gorm:"column:subject;type:varchar(128);primaryKey"`
	Used      int64  `gorm:"column:used;type:bigint;not null"`
}

func (counterRow) TableName() string { return "counters" }

type flowRow struct {
	Seq       int64         `gorm:"column:seq;type:bigint;primaryKey;autoIncrement;index:flows_by_sale,priority:2"`
	SaleID    string        `gorm:"column:sale_id;type:varchar(64);not null;uniqueIndex:flows_once,priority:1;index:flows_by_sale,priority:1"`
	SKU       string        `gorm:"column:sku;type:varchar(64);not null;uniqueIndex:flows_once,priority:2"`
	Counter   string        `gorm:"column:counter;type:varchar(160);not null;uniqueIndex:flows_once,priority:3"`
	Kind      sale.FlowKind `gorm:"column:kind;type:varchar(16);not null;uniqueIndex:flows_once,priority:4"`
	Ref       string        `gorm:"column:ref;type:varchar(128);not null;uniqueIndex:flows_once,priority:5"`
	OrderID   string        `gorm:"column:order_id;type:varchar(91);not null"`
	UserID    string        `gorm:"column:user_id;type:varchar(128);not null"`
	QtyBefore int64         `gorm:"column:qty_before;type:bigint;not null"`
	QtyStep   int64         `gorm:"column:qty_step;type:bigint;not null"`
	QtyAfter  int64         `gorm:"column:qty_after;type:bigint;not null"`
	Reason    string        `gorm:"column:reason;type:varchar(500);not null"`
	Actor     string        `gorm:"column:actor;type:varchar(128);not null"`
	At        time.Time     `gorm:"column:at;type:datetime(3);not null"`
}

func (flowRow) TableName() string { return "flows" }

func (r *flowRow) flow() sale.Flow {
	return sale.Flow{
		Seq: r.Seq, SaleID: r.SaleID, SKU: r.SKU, Counter: r.Counter, Kind: r.Kind, Ref: r.Ref, OrderID: r.OrderID, User: r.UserID,
		Before: r.QtyBefore, Step: r.QtyStep, After: r.QtyAfter, Reason: r.Reason, Actor: r.Actor, At: r.At,
	}
}

type givebackRow struct {
	SaleID    string       `gorm:"column:sale_id;type:varchar(64);primaryKey;index:givebacks_by_applied,priority:2;index:givebacks_by_decided,priority:1"`
	ID        string       `gorm:"column:id;type:varchar(144);primaryKey;index:givebacks_by_applied,priority:3"`
	OrderID   string       `gorm:"column:order_id;type:varchar(91);not null"`
	UserID    string       `gorm:"column:user_id;type:varchar(128);not null"`
	Items     string       `gorm:"column:items;type:text;not null"`
	Units     int64        `gorm:"column:units;type:bigint;not null"`
	Counts    string       `gorm:"column:counts;type:text;not null"`
	DecidedAt time.Time    `gorm:"column:decided_at;type:datetime(3);not null;index:givebacks_by_decided,priority:2"`
	AppliedAt sql.NullTime `gorm:"column:applied_at;type:datetime(3);index:givebacks_by_applied,priority:1"`
}

func (givebackRow) TableName() string { return "givebacks" }

func (r *givebackRow) giveback() (sale.Giveback, error) {
	g := sale.Giveback{ID: r.ID, SaleID: r.SaleID, OrderID: r.OrderID, User: r.UserID}
	if err := json.Unmarshal([]byte(r.Items), &g.Lines); err != nil {
		return sale.Giveback{}, fmt.Errorf("items of giveback %s of sale %s: %w", r.ID, r.SaleID, err)
	}
	if err := json.Unmarshal([]byte(r.Counts), &g.Counts); err != nil {
		return sale.Giveback{}, fmt.Errorf("counts of giveback %s of sale %s: %w", r.ID, r.SaleID, err)
	}
	return g, nil
}

type progressRow struct {
	StreamID int64 `gorm:"column:stream_id;type:bigint;primaryKey;autoIncrement:false"`
	FirstSeq int64 `gorm:"column:first_seq;type:bigint;primaryKey;autoIncrement:false"`
	LastSeq  int64 `gorm:"column:last_seq;type:bigint;not null"`
	LastAt   int64 `gorm:"column:last_at;type:bigint;not null"`
}

func (progressRow) TableName() string { return "progress" }

type deadLetterRow struct {
	SaleID     string     `gorm:"column:sale_id;type:varchar(64);primaryKey"`
	OrderID    string     `gorm:"column:order_id;type:varchar(91);primaryKey"`
	StreamID   int64      `gorm:"column:stream_id;type:bigint;not null"`
	Seq        int64      `gorm:"column:seq;type:bigint;not null"`
	Generation int64      `gorm:"column:generation;type:bigint;not null"`
	Reason     string     `gorm:"column:reason;type:varchar(1000);not null"`
	Attempts   int        `gorm:"column:attempts;type:int;not null"`
	Record     []byte     `gorm:"column:record;type:longblob;not null"`
	Status     DeadStatus `gorm:"column:status;type:varchar(16);not null"`
	At         time.Time  `gorm:"column:at;type:datetime(3);not null"`
	UpdatedAt  time.Time  `gorm:"column:updated_at;type:datetime(3);not null;autoUpdateTime:false"`
}

func (deadLetterRow) TableName() string { return "dead_letters" }

type eventRow struct {
	Seq     int64          `gorm:"column:seq;type:bigint;primaryKey;autoIncrement"`
	SaleID  string         `gorm:"column:sale_id;type:varchar(64);not null"`
	OrderID string         `gorm:"column:order_id;type:varchar(91);not null"`
	Kind    sale.EventKind `gorm:"column:kind;type:varchar(16);not null"`
	Body    string         `gorm:"column:body;type:text;not null"`
	At      time.Time      `gorm:"column:at;type:datetime(3);not null"`
}

func (eventRow) TableName() string { return "events" }

type deliveryRow struct {
	OrderID   string         `gorm:"column:order_id;type:varchar(91);primaryKey;index:deliveries_by_sale,priority:2"`
	SaleID    string         `gorm:"column:sale_id;type:varchar(64);not null;index:deliveries_by_sale,priority:1"`
	URL       string         `gorm:"column:url;type:varchar(2000);not null"`
	Host      string         `gorm:"column:host;type:varchar(255);not null;index:deliveries_due,priority:2"`
	Body      string         `gorm:"column:body;type:text;not null"`
	Status    DeliveryStatus `gorm:"column:status;type:varchar(16);not null;index:deliveries_due,priority:1"`
	Attempts  int            `gorm:"column:attempts;type:int;not null"`
	LastError string         `gorm:"column:last_error;type:varchar(500);not null"`
	CreatedAt time.Time      `gorm:"column:created_at;type:datetime(3);not null;autoCreateTime:false"`
	NextAt    time.Time      `gorm:"column:next_at;type:datetime(3);not null;index:deliveries_due,priority:3"`
	GiveUpAt  time.Time      `gorm:"column:give_up_at;type:datetime(3);not null"`
	UpdatedAt time.Time      `gorm:"column:updated_at;type:datetime(3);not null;autoUpdateTime:false"`
}

func (deliveryRow) TableName() string { return "deliveries" }

type changeRow struct {
	Seq      int64     `gorm:"column:seq;type:bigint;primaryKey;autoIncrement;index:changes_by_sale,priority:2"`
	SaleID   string    `gorm:"column:sale_id;type:varchar(64);not null;index:changes_by_sale,priority:1"`
	Field    string    `gorm:"column:field;type:varchar(80);not null"`
	OldValue string    `gorm:"column:old_value;type:varchar(2000);not null"`
	NewValue string    `gorm:"column:new_value;type:varchar(2000);not null"`
	Reason   string    `gorm:"column:reason;type:varchar(500);not null"`
	Actor    string    `gorm:"column:actor;type:varchar(128);not null"`
	At       time.Time `gorm:"column:at;type:datetime(3);not null"`
}

func (changeRow) TableName() string { return "changes" }

// encodeLines writes the JSON of an items column.
func encodeLines[L sale.Line | sale.OrderLine](lines []L) (string, error) {
	b, err := json.Marshal(lines)
	if err != nil {
		return "", fmt.Errorf("encode lines: %w", err)
	}
	return string(b), nil
}
