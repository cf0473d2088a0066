package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Ask is one grab of a batch.
type Ask struct {
	Grant *sale.Grant
	// Record is the grant as sale.AppendGrant writes it.
	Record []byte
}

// Batch is what one call of grab.lua decides.
type Batch struct {
	SaleID  string
	PerUser int64  // most units a user may hold, 0 is no limit
	Process string // the calling process
	Number  uint64 // counts the process's batches of this sale from 1
	// Acked is the last batch that is in the stream with all before it.
	Acked uint64
	// PerSecond is the most grabs of the sale that are decided in a second, over all
	// processes; 0 is no limit.
	PerSecond int64
	// Limits hold all at once; Zone is where their windows begin and end, nil for UTC.
	Limits []sale.Limit
	Zone   *time.Location
	Asks   []Ask // at most MaxAsks
}

// MaxAsks bounds a batch: Lua can't unpack much more than 7,000 values, and a
// script that fails between its writes leaves half of them.
const MaxAsks = 1000

// ErrBatch says that a batch can't be decided by any rule: nothing was sent.
var ErrBatch = errors.New("bad batch")

// check holds what grab.lua relies on and does not look at itself.
func (b *Batch) check() error {
	switch {
	case len(b.Asks) == 0 || len(b.Asks) > MaxAsks:
		return fmt.Errorf("%w: %d grabs, must be 1 to %d", ErrBatch, len(b.Asks), MaxAsks)
	case !sale.ValidID(b.Process):
		return fmt.Errorf("%w: process %q: must be 1 to %d of A-Z a-z 0-9 _ -", ErrBatch, b.Process, sale.MaxIDLen)
	case b.Number == 0 || b.Acked >= b.Number:
		return fmt.Errorf("%w: number %d, acked %d: must count from 1 and follow what is acked", ErrBatch, b.Number, b.Acked)
	}
	for i := range b.Asks {
		if err := b.Asks[i].check(); err != nil {
			return fmt.Errorf("%w: grab %d: %w", ErrBatch, i, err)
		}
	}
	return nil
}

func (a *Ask) check() error {
	switch {
	case (a.Grant.Kind == sale.GrantAdjust) != (a.Grant.User == ""):
		return errors.New("an adjustment has no user, everything else has one")
	case a.Grant.OrderID == "" || len(a.Record) == 0 || len(a.Grant.Lines) == 0:
		return errors.New("must have an order id, a record and lines")
	}
	most := int64(sale.MaxQuantity)
	if a.Grant.Kind == sale.GrantAdjust {
		most = sale.MaxStock
	}
	for _, l := range a.Grant.Lines {
		if l.Quantity < 1 || l.Quantity > most {
			return fmt.Errorf("quantity %d: must be 1 to %d", l.Quantity, most)
		}
	}
	return nil
}

// Code is grab.lua's answer to one ask.
type Code byte

// The codes of grab.lua.
const (
	CodeWon            Code = 'W'
	CodeReplayed       Code = 'R'
	CodeAlreadyGrabbed Code = 'A'
	CodeLimit          Code = 'L'
	CodeCount          Code = 'C'
	CodeSoldOut        Code = 'S'
	CodeThrottled      Code = 'T'
)

// Answer is what grab.lua decided about one ask.
type Answer struct {
	Code    Code
	Replay  Stored        // CodeReplayed
	OrderID string        // CodeAlreadyGrabbed: the user's last order
	Held    int64         // CodeLimit: units the user holds
	Limit   string        // CodeCount: name of the limit that refuses
	SKU     string        // CodeSoldOut: the first item that is short
	Wait    time.Duration // CodeThrottled: until the next grab may come
	// Used is the units used, right after this ask, of the sale's first limit of scope
	// sale, in the period of the ask; NoCount without one.
	Used int64
}

// NoCount stands for the units used where nothing counts them.
const NoCount int64 = -1

// Decision is the answer to a batch.
type Decision struct {
	Head sale.BatchHead
	// Applied counts the givebacks the sale has seen: while it and the
	// generation stay the same, what is sold out stays sold out.
	Applied int64
	Answers []Answer
	// Remaining is the units left per SKU the batch named, -1 is unlimited.
	Remaining map[string]int64
	// Body is the batch as it stands on the outbox; nil when nobody won and
	// nothing was replayed in its own generation.
	Body []byte
}

// ErrBarred says that the batch was given up before it reached Redis.
var ErrBarred = errors.New("batch was barred")

// Stored is a grant as Redis keeps it.
type Stored struct {
	Restored bool // by a restore: durable by construction
	Process  string
	Number   uint64 // of the batch it was made in, 0 when it was restored
	Record   []byte // see sale.AppendGrant
}

// Grab decides a batch. An error that is not a *NotLoaded leaves open whether the
// batch was decided: the same asks may be asked again, and those that had won
// come back replayed.
func (s *Store) Grab(ctx context.Context, b Batch) (Decision, error) {
	if err := b.check(); err != nil {
		return Decision{}, fmt.Errorf("grab of sale %s: %w", b.SaleID, err)
	}
	in := b.arguments()
	keys := KeysOf(b.SaleID)
	all := append(keys.core(), keys.Outboxes(), keys.Rate(), keys.Outbox(b.Process))
	for _, sku := range in.skus {
		all = append(all, keys.Stock(sku))
	}
	for _, u := range in.used {
		all = append(all, keys.Used(u.limit.Name(), u.period))
	}
	_, reply, err := s.call(ctx, b.SaleID, func(n *names) string { return n.grab }, all, in.args)
	if err != nil {
		return Decision{}, err
	}
	if status, err := textAt(reply, 0); err != nil || status == "barred" {
		return Decision{}, errors.Join(err, fmt.Errorf("grab of sale %s: %w", b.SaleID, ErrBarred))
	}
	d, err := b.decision(reply, &in)
	if err != nil {
		return Decision{}, fmt.Errorf("grab of sale %s: %w", b.SaleID, err)
	}
	return d, nil
}

func (b *Batch) decision(reply []any, in *arguments) (Decision, error) {
	gen, err := numberAt(reply, 1)
	if err != nil {
		return Decision{}, err
	}
	fence, err := numberAt(reply, 2)
	if err != nil {
		return Decision{}, err
	}
	applied, err := intAt(reply, 3)
	if err != nil {
		return Decision{}, err
	}
	codes, err := textAt(reply, 4)
	if err != nil {
		return Decision{}, err
	}
	details, err := listAt(reply, 5)
	if err != nil {
		return Decision{}, err
	}
	remaining, err := remainingAt(reply, 6, in.skus)
	if err != nil {
		return Decision{}, err
	}
	d := Decision{
		Head:    sale.BatchHead{Generation: gen, Fence: uint64(fence), Number: b.Number, Process: b.Process},
		Applied: applied, Remaining: remaining,
	}
	if d.Answers, err = answers(codes, details, in); err != nil {
		return Decision{}, err
	}
	if len(d.Answers) != len(b.Asks) {
		return Decision{}, fmt.Errorf("%d answers to %d grabs", len(d.Answers), len(b.Asks))
	}
	used, err := usedAt(reply, 7, len(in.used))
	if err != nil {
		return Decision{}, err
	}
	b.tellUsed(d.Answers, used, in)
	d.Body = b.body(&d)
	return d, nil
}

// answers pairs each code with its detail.
func answers(codes string, details []any, in *arguments) ([]Answer, error) {
	out := make([]Answer, len(codes))
	next := 0
	for i := range codes {
		a := &out[i]
		a.Code = Code(codes[i])
		var err error
		switch a.Code {
		case CodeWon:
			continue
		case CodeReplayed:
			var text string
			if text, err = textAt(details, next); err == nil {
				a.Replay, err = parseStored(text)
			}
		case CodeAlreadyGrabbed:
			a.OrderID, err = textAt(details, next)
		case CodeLimit:
			a.Held, err = intAt(details, next)
		case CodeSoldOut:
			var at int64
			if at, err = indexAt(details, next, len(in.skus)); err == nil {
				a.SKU = in.skus[at]
			}
		case CodeCount:
			var at int64
			if at, err = indexAt(details, next, len(in.used)); err == nil {
				a.Limit = in.used[at].limit.Name()
			}
		case CodeThrottled:
			var ms int64
			ms, err = intAt(details, next)
			a.Wait = time.Duration(ms) * time.Millisecond
		default:
			err = fmt.Errorf("unknown code %q", codes[i])
		}
		if err != nil {
			return nil, err
		}
		next++
	}
	return out, nil
}

// usedAt reads the units used of n used keys.
func usedAt(reply []any, i, n int) ([]int64, error) {
	list, err := listAt(reply, i)
	if err != nil {
		return nil, err
	}
	if len(list) != n {
		return nil, fmt.Errorf("%d used counts for %d used keys", len(list), n)
	}
	used := make([]int64, n)
	for k := range used {
		if used[k], err = intAt(list, k); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// tellUsed tells each ask what was used right after it: it takes the winners off the
// final count, from the last one on. It uses used up.
func (b *Batch) tellUsed(answers []Answer, used []int64, in *arguments) {
	for i := len(answers) - 1; i >= 0; i-- {
		answers[i].Used = NoCount
		if at := in.sharedBy(i); at >= 0 {
			answers[i].Used = used[at]
			if answers[i].Code == CodeWon {
				used[at] -= b.Asks[i].Grant.Units()
			}
		}
	}
}

// indexAt reads an index that Lua counts from 1, of a list of n.
func indexAt(details []any, i, n int) (int64, error) {
	at, err := intAt(details, i)
	if err == nil && (at < 1 || at > int64(n)) {
		err = fmt.Errorf("nothing at %d of %d", at, n)
	}
	return at - 1, err
}

// body puts the batch together the way grab.lua does: winners in order, then
// what was replayed in this generation, each order once.
func (b *Batch) body(d *Decision) []byte {
	size := 0
	for i := range d.Answers {
		size += max(len(b.Asks[i].Record), len(d.Answers[i].Replay.Record))
	}
	head := sale.AppendHead(make([]byte, 0, headRoom+size), d.Head)
	body := head
	again := false
	for i := range d.Answers {
		switch a := &d.Answers[i]; {
		case a.Code == CodeWon:
			body = append(body, b.Asks[i].Record...)
		case a.Code == CodeReplayed && !a.Replay.Restored:
			again = true
		}
	}
	if again {
		body = b.appendReplayed(body, d)
	}
	if len(body) == len(head) {
		return nil
	}
	return body
}

// headRoom is enough for the head of a batch.
const headRoom = 128 + sale.MaxIDLen

// appendReplayed appends what was replayed in this generation and does not stand
// among the winners.
func (b *Batch) appendReplayed(body []byte, d *Decision) []byte {
	seen := make(map[string]bool)
	for i := range d.Answers {
		if d.Answers[i].Code == CodeWon {
			seen[b.Asks[i].Grant.OrderID] = true
		}
	}
	for i := range d.Answers {
		id, a := b.Asks[i].Grant.OrderID, &d.Answers[i]
		if a.Code == CodeReplayed && !a.Replay.Restored && !seen[id] {
			body = append(body, a.Replay.Record...)
			seen[id] = true
		}
	}
	return body
}

// parseStored reads "PROCESS NUMBER\n" + record.
func parseStored(text string) (Stored, error) {
	head, record, ok := strings.Cut(text, "\n")
	process, count, two := strings.Cut(head, " ")
	if !ok || !two {
		return Stored{}, fmt.Errorf("stored grant %q: bad head", head)
	}
	number, err := strconv.ParseUint(count, 10, 64)
	if err != nil {
		return Stored{}, fmt.Errorf("stored grant: number: %w", err)
	}
	return Stored{Restored: process == restoredBy, Process: process, Number: number, Record: []byte(record)}, nil
}

// restoredBy stands for the process of a grant that a restore wrote; no process
// has that name.
const restoredBy = "-"

// numberAt reads a number that Redis keeps as text.
func numberAt(reply []any, i int) (int64, error) {
	text, err := textAt(reply, i)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("script answer: %w", err)
	}
	return n, nil
}

func remainingAt(reply []any, i int, skus []string) (map[string]int64, error) {
	list, err := listAt(reply, i)
	if err != nil {
		return nil, err
	}
	if len(list) != len(skus) {
		return nil, fmt.Errorf("%d remaining counts for %d SKUs", len(list), len(skus))
	}
	remaining := make(map[string]int64, len(skus))
	for k, sku := range skus {
		if remaining[sku], err = intAt(list, k); err != nil {
			return nil, err
		}
	}
	return remaining, nil
}
