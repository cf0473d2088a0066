package sale

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A batch is the grants of one script call: the outbox entry in Redis and the
// body of one stream message are the same bytes.
//
//	DB1 GENERATION FENCE NUMBER PROCESS\n   the head, ASCII; grab.lua writes it
//	(uvarint length, record) ...            one per grant, made by AppendGrant
//
// A record is kind (1 byte), order id, user, key, ip (uvarint length, bytes),
// granted at (uvarint, Unix ms), expires after (uvarint, ms; 0 is never),
// number of lines (uvarint), and per line SKU, quantity, price in cents.
const batchMagic = "DB1"

// ErrCorrupt is wrapped by every error of decoding a batch or a record.
var ErrCorrupt = errors.New("corrupt grant batch")

// BatchHead says where and under which fence a batch was made.
type BatchHead struct {
	Generation int64  // of the sale's restored state in Redis
	Fence      uint64 // stream sequence of the fence that began the generation
	Number     uint64 // counts the batches of one process and sale from 1
	Process    string // the grab process, [A-Za-z0-9_-]
}

// ID names the batch for the stream's de-duplication.
func (h BatchHead) ID() string {
	return fmt.Sprintf("%s-%d-%d", h.Process, h.Generation, h.Number)
}

// Batch is a decoded batch.
type Batch struct {
	BatchHead
	Grants []Grant
}

// AppendHead appends the head line of a batch.
func AppendHead(b []byte, h BatchHead) []byte {
	b = append(b, batchMagic+" "...)
	b = strconv.AppendInt(b, h.Generation, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, h.Fence, 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, h.Number, 10)
	b = append(b, ' ')
	b = append(b, h.Process...)
	return append(b, '\n')
}

// AppendGrant appends a grant as (length, record).
func AppendGrant(b []byte, g *Grant) []byte {
	r := make([]byte, 0, 160)
	r = append(r, byte(g.Kind))
	for _, s := range []string{g.OrderID, g.User, g.Key, g.IP} {
		r = appendString(r, s)
	}
	r = binary.AppendUvarint(r, uint64(g.At.UnixMilli()))
	var after uint64
	if !g.ExpiresAt.IsZero() {
		after = uint64(max(g.ExpiresAt.Sub(g.At).Milliseconds(), 1))
	}
	r = binary.AppendUvarint(r, after)
	r = binary.AppendUvarint(r, uint64(len(g.Lines)))
	for _, l := range g.Lines {
		r = appendString(r, l.SKU)
		r = binary.AppendUvarint(r, uint64(l.Quantity))
		r = binary.AppendUvarint(r, uint64(l.PriceCents))
	}
	b = slices.Grow(b, binary.MaxVarintLen32+len(r))
	b = binary.AppendUvarint(b, uint64(len(r)))
	return append(b, r...)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// ParseHead reads the head line and returns the rest of the batch.
func ParseHead(b []byte) (BatchHead, []byte, error) {
	line, rest, ok := bytes.Cut(b, []byte{'\n'})
	f := strings.Split(string(line), " ")
	if !ok || len(f) != 5 || f[0] != batchMagic || f[4] == "" {
		return BatchHead{}, nil, fmt.Errorf("%w: bad head", ErrCorrupt)
	}
	gen, err1 := strconv.ParseInt(f[1], 10, 64)
	fence, err2 := strconv.ParseUint(f[2], 10, 64)
	number, err3 := strconv.ParseUint(f[3], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return BatchHead{}, nil, fmt.Errorf("%w: bad head: %w", ErrCorrupt, err)
	}
	return BatchHead{Generation: gen, Fence: fence, Number: number, Process: f[4]}, rest, nil
}

// DecodeBatch reads a whole batch.
func DecodeBatch(b []byte) (Batch, error) {
	head, rest, err := ParseHead(b)
	if err != nil {
		return Batch{}, err
	}
	batch := Batch{BatchHead: head}
	for len(rest) > 0 {
		var g Grant
		if g, rest, err = DecodeGrant(rest); err != nil {
			return Batch{}, fmt.Errorf("batch %s, grant %d: %w", head.ID(), len(batch.Grants), err)
		}
		batch.Grants = append(batch.Grants, g)
	}
	return batch, nil
}

// EncodeBatch writes a whole batch.
func EncodeBatch(batch Batch) []byte {
	b := AppendHead(nil, batch.BatchHead)
	for i := range batch.Grants {
		b = AppendGrant(b, &batch.Grants[i])
	}
	return b
}

// DecodeGrant reads one (length, record) and returns what follows it.
func DecodeGrant(b []byte) (Grant, []byte, error) {
	outer := reader{b: b}
	r := reader{b: outer.bytes()}
	if outer.failed {
		return Grant{}, nil, fmt.Errorf("%w: short record", ErrCorrupt)
	}
	g := Grant{Kind: GrantKind(r.byte())}
	g.OrderID, g.User, g.Key, g.IP = r.string(), r.string(), r.string(), r.string()
	at := r.int()
	g.At = time.UnixMilli(at).UTC()
	if after := r.int(); after > 0 {
		if after > math.MaxInt64-at {
			r.failed = true
		}
		g.ExpiresAt = time.UnixMilli(at + after).UTC()
	}
	lines := r.int()
	if lines > int64(len(r.b)) { // a line takes more than one byte
		r.failed = true
	}
	for i := int64(0); i < lines && !r.failed; i++ {
		g.Lines = append(g.Lines, Line{SKU: r.string(), Quantity: r.int(), PriceCents: r.int()})
	}
	if r.failed || len(r.b) > 0 || (g.Kind != GrantGrab && g.Kind != GrantAdjust) {
		return Grant{}, nil, fmt.Errorf("%w: bad record", ErrCorrupt)
	}
	return g, outer.b, nil
}

// reader takes values off the front of b until one does not fit.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.failed = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > math.MaxInt64 {
		r.failed = true
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) bytes() []byte {
	n := r.int()
	if r.failed || n > int64(len(r.b)) {
		r.failed = true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.bytes()) }
