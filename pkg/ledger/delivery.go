package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// DeliveryStatus is what became of a delivery.
//
//	waiting --2xx--> delivered
//	   |  \--given up--> failed (order rolled back) or parked
//	   \--order ended--> dropped
//	delivered, failed, parked --resent--> waiting
type DeliveryStatus string

// The states of a delivery.
const (
	DeliveryWaiting   DeliveryStatus = "waiting"   // for its next attempt
	DeliveryDelivered DeliveryStatus = "delivered" // the receiver took it
	DeliveryFailed    DeliveryStatus = "failed"    // given up; the order was rolled back, unless it was fulfilled before
	DeliveryParked    DeliveryStatus = "parked"    // given up, or its order can't be read; an operator decides
	DeliveryDropped   DeliveryStatus = "dropped"   // its order ended before it was delivered
)

// DeliveryStatuses lists every state.
var DeliveryStatuses = []DeliveryStatus{
	DeliveryWaiting, DeliveryDelivered, DeliveryFailed, DeliveryParked, DeliveryDropped,
}

// Delivery is the call of the shop's system about one order. Its times are those of
// the database's clock.
type Delivery struct {
	OrderID   string
	SaleID    string
	URL       string // may hold credentials in its query: never to be logged
	Host      string // of the URL
	Body      []byte // the JSON of a sale.Event
	Status    DeliveryStatus
	Attempts  int    // begun since it was queued or sent again
	LastError string // of the last failed attempt
	CreatedAt time.Time
	NextAt    time.Time // of a waiting one
	GiveUpAt  time.Time
	UpdatedAt time.Time
}

// CountDeliveries returns how many deliveries are in a state, of all sales.
func (l *Ledger) CountDeliveries(ctx context.Context, status DeliveryStatus) (int64, error) {
	var n int64
	if err := l.read.WithContext(ctx).Model(&deliveryRow{}).Where("status = ?", status).Count(&n).Error; err != nil {
		return 0, fmt.Errorf("count %s deliveries: %w", status, err)
	}
	return n, nil
}

// ErrNoFulfilment says that a sale's rules name no receiver.
var ErrNoFulfilment = errors.New("the sale has no fulfilment")

// maxHost and maxDeliveryError bound text in characters; see schema.sql.
const (
	maxHost          = 255
	maxDeliveryError = 500
)

// newDelivery is a delivery of an event about an order of the sale, due at once.
func newDelivery(orderID string, s *sale.Sale, event []byte, at time.Time) deliveryRow {
	row := deliveryRow{OrderID: orderID, SaleID: s.ID, Body: string(event), CreatedAt: at}
	row.queue(s.Fulfilment, at)
	return row
}

// queue makes a delivery due at once, to the receiver that the rules name.
func (r *deliveryRow) queue(rules *sale.Fulfilment, at time.Time) {
	r.URL, r.Host, r.Status = rules.URL, hostOf(rules.URL), DeliveryWaiting
	r.Attempts, r.NextAt, r.UpdatedAt = 0, at, at
	r.GiveUpAt = at.Add(time.Duration(rules.GiveUpAfter))
}

// hostOf is the host and port of a URL; a receiver of its own where it has none.
func hostOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return fit(strings.ToLower(parsed.Host), maxHost)
}

func (r *deliveryRow) delivery() Delivery {
	return Delivery{
		OrderID: r.OrderID, SaleID: r.SaleID, URL: r.URL, Host: r.Host, Body: []byte(r.Body), Status: r.Status,
		Attempts: r.Attempts, LastError: r.LastError, CreatedAt: r.CreatedAt, NextAt: r.NextAt, GiveUpAt: r.GiveUpAt,
		UpdatedAt: r.UpdatedAt,
	}
}

func deliveries(rows []deliveryRow) []Delivery {
	all := make([]Delivery, len(rows))
	for i := range rows {
		all[i] = rows[i].delivery()
	}
	return all
}

// dropDeliveries ends the deliveries of orders that have ended.
func dropDeliveries(tx *gorm.DB, orderIDs []string) error {
	err := tx.Model(&deliveryRow{}).
		Where("order_id IN ? AND status IN ?", orderIDs, []DeliveryStatus{DeliveryWaiting, DeliveryParked}).
		UpdateColumns(map[string]any{"status": DeliveryDropped, "updated_at": now()}).Error
	if err != nil {
		return fmt.Errorf("drop deliveries: %w", err)
	}
	return nil
}

// GetDelivery returns the delivery of an order, or ErrNotFound.
func (l *Ledger) GetDelivery(ctx context.Context, orderID string) (Delivery, error) {
	row, err := take[deliveryRow](l.read.WithContext(ctx).Where("order_id = ?", orderID))
	if err != nil {
		return Delivery{}, fmt.Errorf("delivery of order %s: %w", orderID, err)
	}
	return row.delivery(), nil
}

// ListDeliveries returns deliveries of a sale with an order id above after, at most
// limit (1 to PageMax); in one state unless status is empty. The last one's OrderID
// is the next after.
func (l *Ledger) ListDeliveries(ctx context.Context, saleID string, status DeliveryStatus, after string, limit int) ([]Delivery, error) {
	if err := checkLimit(limit); err != nil {
		return nil, err
	}
	query := l.read.WithContext(ctx).Where("sale_id = ? AND order_id > ?", saleID, after)
	if status != "" {
		query = query.Where("status = ?", status)
	}
	var rows []deliveryRow
	if err := query.Order("order_id").Limit(limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list deliveries of sale %s: %w", saleID, err)
	}
	return deliveries(rows), nil
}

// Resend makes the delivery of an order due at once, to the receiver that the sale's
// rules name now, with all its time before it. An order that these rules would have
// sent, had they been there in time, gets its delivery. It answers ErrNotFound,
// *OrderStatusError when the order has ended, and ErrNoFulfilment.
func (l *Ledger) Resend(ctx context.Context, orderID string) (Delivery, error) {
	var sent Delivery
	err := l.change(ctx, "resend the delivery of order "+orderID, func(tx *gorm.DB) error {
		order, err := take[orderRow](tx.Where("id = ?", orderID).Clauses(clause.Locking{Strength: "UPDATE"}))
		if err != nil {
			return err
		}
		sales, err := saleHeaders(tx, []string{order.SaleID})
		if err != nil {
			return err
		}
		s := sales[order.SaleID]
		row, err := take[deliveryRow](tx.Where("order_id = ?", orderID).Clauses(clause.Locking{Strength: "UPDATE"}))
		switch {
		case errors.Is(err, ErrNotFound):
			sent, err = l.sendMissing(tx, s, &order)
			return err
		case err != nil:
			return err
		case !order.Status.Live():
			return &OrderStatusError{OrderID: orderID, Status: order.Status}
		case s == nil || s.Fulfilment == nil:
			return ErrNoFulfilment
		}
		at, err := l.clock(tx)
		if err != nil {
			return err
		}
		row.queue(s.Fulfilment, at)
		sent = row.delivery()
		return tx.Select("url", "host", "status", "attempts", "next_at", "give_up_at", "updated_at").UpdateColumns(&row).Error
	})
	if err != nil {
		return Delivery{}, err
	}
	return sent, nil
}

// sendMissing queues a live order that has no delivery, unless the sale's rules want
// none of it, or none yet: ErrNotFound.
func (l *Ledger) sendMissing(tx *gorm.DB, s *sale.Sale, row *orderRow) (Delivery, error) {
	if l.cfg.NoEvents || !row.Status.Live() || s == nil || s.Fulfilment == nil {
		return Delivery{}, ErrNotFound
	}
	kind := sale.EventPaid
	if row.Status == sale.OrderPendingPayment {
		kind = sale.EventCreated
	}
	if !slices.Contains(triggers[kind], s.Fulfilment.Trigger) {
		return Delivery{}, ErrNotFound
	}
	order, err := row.order()
	if err != nil {
		return Delivery{}, err
	}
	body, err := encodeEvent(kind, &order, "", order.UpdatedAt)
	if err != nil {
		return Delivery{}, err
	}
	at, err := l.clock(tx)
	if err != nil {
		return Delivery{}, err
	}
	missing := newDelivery(row.ID, s, body, at)
	return missing.delivery(), tx.Create(&missing).Error
}
