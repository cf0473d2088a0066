package ledger

import (
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// What callers tell apart.
var (
	ErrNotFound = errors.New("not found in the ledger")
	// ErrSaleExists says that another sale has this id.
	ErrSaleExists = errors.New("a sale with this id exists")
	// ErrUnknownItem says that the sale, or its SKU, is not in the ledger.
	ErrUnknownItem = errors.New("no such item in the ledger")
	// ErrInvalidGrant says that no grab can have made this grant.
	ErrInvalidGrant = errors.New("invalid grant")
	// ErrUnlimited says that unlimited stock can't be changed by a number of units.
	ErrUnlimited = errors.New("the stock is unlimited")
	// ErrLimited says that limited stock is changed by a number of units, not to one.
	ErrLimited = errors.New("the stock is limited")
	// ErrOvertaken says that a later generation of the sale has begun.
	ErrOvertaken = errors.New("a later generation of the sale has begun")
	// ErrRefReused says that an adjustment's id was used for another one.
	ErrRefReused = errors.New("the id belongs to another adjustment")
)

// PoisonGrant is a grant that can never be recorded, and why.
type PoisonGrant struct {
	Seq        uint64 // of its message in the stream
	SaleID     string // of its message
	Generation int64
	Grant      sale.Grant
	Reason     error // wraps ErrInvalidGrant or ErrUnknownItem
}

// PoisonError names every grant of a batch that can never be recorded. Nothing
// of the batch was written.
type PoisonError struct {
	Grants []PoisonGrant
}

func (e *PoisonError) Error() string {
	first := e.Grants[0]
	return fmt.Sprintf("%d grants cannot be recorded, the first is %q of message %d: %v",
		len(e.Grants), first.Grant.OrderID, first.Seq, first.Reason)
}

// OrderStatusError says that an order's status does not allow the change.
type OrderStatusError struct {
	OrderID string
	Status  sale.OrderStatus
}

func (e *OrderStatusError) Error() string {
	return fmt.Sprintf("order %s is %s", e.OrderID, e.Status)
}

// SaleStatusError says that a sale's status does not allow the change.
type SaleStatusError struct {
	SaleID string
	Status sale.Status
}

func (e *SaleStatusError) Error() string {
	return fmt.Sprintf("sale %s is %s", e.SaleID, e.Status)
}

// DeadStatusError says that a dead letter was dealt with already.
type DeadStatusError struct {
	SaleID, OrderID string
	Status          DeadStatus
}

func (e *DeadStatusError) Error() string {
	return fmt.Sprintf("dead letter %s of sale %s is %s", e.OrderID, e.SaleID, e.Status)
}
