package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/doorbuster/doorbuster/pkg/sale"
)

// ErrNoSale says that the catalogue does not hold the sale.
var ErrNoSale = errors.New("no such sale in the catalogue")

// putAttempts bounds how often a change of a sale definition is tried when others
// change it at the same time.
const putAttempts = 20

// PutSale stores a sale definition for the grab nodes to see. A lower revision never
// overwrites a higher one: then nothing is stored, and there is no error, because
// what the caller knows is simply old.
func (s *Stream) PutSale(ctx context.Context, def *sale.Sale) error {
	data, err := json.Marshal(def)
	if err == nil {
		err = s.changeSale(ctx, def.ID, func(ctx context.Context, bucket jetstream.KeyValue, have jetstream.KeyValueEntry) error {
			return putSale(ctx, bucket, have, def, data)
		})
	}
	if err != nil {
		return fmt.Errorf("put sale %s: %w", def.ID, err)
	}
	return nil
}

func putSale(ctx context.Context, bucket jetstream.KeyValue, have jetstream.KeyValueEntry, def *sale.Sale, data []byte) error {
	if have == nil {
		_, err := bucket.Create(ctx, def.ID, data)
		return err
	}
	if bytes.Equal(have.Value(), data) {
		return nil
	}
	// What can't be read is no definition, whatever its revision was.
	if old, err := decodeSale(have); err == nil && old.Revision > def.Revision {
		return nil
	}
	_, err := bucket.Update(ctx, def.ID, data, have.Revision())
	return err
}

// DeleteSale removes a sale definition. One that is not there is no error.
func (s *Stream) DeleteSale(ctx context.Context, saleID string) error {
	err := s.changeSale(ctx, saleID, func(ctx context.Context, bucket jetstream.KeyValue, have jetstream.KeyValueEntry) error {
		if have == nil {
			return nil
		}
		return bucket.Delete(ctx, saleID, jetstream.LastRevision(have.Revision()))
	})
	if err != nil {
		return fmt.Errorf("delete sale %s: %w", saleID, err)
	}
	return nil
}

// changeSale reads the entry of a sale (nil when there is none) and has change
// write it on the condition that it still is the same; if not, it tries again.
func (s *Stream) changeSale(ctx context.Context, saleID string,
	change func(context.Context, jetstream.KeyValue, jetstream.KeyValueEntry) error) error {
	var failure error
	for attempt := 1; attempt <= putAttempts; attempt++ {
		failure = s.changeSaleOnce(ctx, saleID, change)
		switch apiCode(failure) {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		default:
			return failure
		}
		if !backoff.Pause(ctx, backoff.Delay(attempt, retryBase, retryMax)) {
			break
		}
	}
	return failure
}

func (s *Stream) changeSaleOnce(ctx context.Context, saleID string,
	change func(context.Context, jetstream.KeyValue, jetstream.KeyValueEntry) error) error {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	bucket, err := s.bucket(ctx, SalesBucket)
	if err != nil {
		return err
	}
	have, err := bucket.Get(ctx, saleID)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		have, err = nil, nil
	}
	if err != nil {
		return err
	}
	return change(ctx, bucket, have)
}

// GetSale returns a sale definition, or ErrNoSale.
func (s *Stream) GetSale(ctx context.Context, saleID string) (*sale.Sale, error) {
	ctx, cancel, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	bucket, err := s.bucket(ctx, SalesBucket)
	if err != nil {
		return nil, err
	}
	entry, err := bucket.Get(ctx, saleID)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, ErrNoSale
	}
	if err != nil {
		return nil, fmt.Errorf("get sale %s: %w", saleID, err)
	}
	return decodeSale(entry)
}

func decodeSale(entry jetstream.KeyValueEntry) (*sale.Sale, error) {
	var def sale.Sale
	if err := json.Unmarshal(entry.Value(), &def); err != nil {
		return nil, fmt.Errorf("decode sale %s: %w", entry.Key(), err)
	}
	if def.ID != entry.Key() {
		return nil, fmt.Errorf("decode sale %s: it names itself %q", entry.Key(), def.ID)
	}
	return &def, nil
}

// SaleWatch follows the sale definitions.
type SaleWatch struct {
	stream *Stream
	update func(def *sale.Sale, deletedID string)
	ready  chan struct{}
	known  map[string]bool // sales that update was told of
	opened bool            // ready is closed
}

// WatchSales returns a watch that calls update for every sale there is, and then
// for every change: with the definition, or with nil and the id of a sale that is gone. The
// calls come from one goroutine, Run's. After a lost connection all sales are told
// again, so update must take a definition that it has already.
func (s *Stream) WatchSales(update func(def *sale.Sale, deletedID string)) *SaleWatch {
	return &SaleWatch{stream: s, update: update, ready: make(chan struct{}), known: map[string]bool{}}
}

// Ready is closed once update has been called for every sale there was.
func (w *SaleWatch) Ready() <-chan struct{} { return w.ready }

// Run watches until ctx ends. While NATS is away it tries again with growing delays.
func (w *SaleWatch) Run(ctx context.Context) {
	// A reconnect may be to a server that knows nothing of our watch, which would
	// notice only seconds later. So each one begins a new watch.
	reconnects := w.stream.nc.StatusChanged(nats.CONNECTED)
	defer w.stream.nc.RemoveStatusListener(reconnects)
	failures := 0
	for ctx.Err() == nil {
		err := w.follow(ctx, reconnects, func() { failures = 0 })
		if err == nil || ctx.Err() != nil {
			continue
		}
		failures++
		w.stream.cfg.Logger.Warn("watch of sales interrupted", "failures", failures, "error", err)
		backoff.Pause(ctx, backoff.Delay(failures, retryBase, retryMax))
	}
}

// errWatchEnded says that nats.go closed a watch by itself.
var errWatchEnded = errors.New("the watch ended")

// follow runs one watch, until ctx ends, the connection was lost and is back
// (nil), or something fails.
func (w *SaleWatch) follow(ctx context.Context, reconnects <-chan nats.Status, alive func()) error {
	watcher, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// It fails when the watch has ended already, which is as good. The callback
		// may be blocked in a send: reading on until the channel is closed frees it.
		_ = watcher.Stop()
		for range watcher.Updates() {
		}
	}()
	seen := map[string]bool{} // in this watch's initial load; nil once it is complete
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnects:
			return nil
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return errWatchEnded
			case entry == nil:
				w.loaded(seen)
				seen = nil
				alive()
			default:
				w.take(entry)
				if seen != nil {
					seen[entry.Key()] = true
				}
			}
		}
	}
}

func (w *SaleWatch) open(ctx context.Context) (jetstream.KeyWatcher, error) {
	lookup, cancel, err := w.stream.request(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	bucket, err := w.stream.bucket(lookup, SalesBucket)
	if err != nil {
		return nil, err
	}
	watcher, err := bucket.WatchAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch bucket %s: %w", SalesBucket, err)
	}
	return watcher, nil
}

// loaded ends an initial load: what an earlier watch had told of and this one did
// not find is gone.
func (w *SaleWatch) loaded(seen map[string]bool) {
	for id := range w.known {
		if !seen[id] {
			w.delete(id)
		}
	}
	if !w.opened {
		w.opened = true
		close(w.ready)
	}
}

func (w *SaleWatch) take(entry jetstream.KeyValueEntry) {
	if entry.Operation() != jetstream.KeyValuePut {
		w.delete(entry.Key())
		return
	}
	def, err := decodeSale(entry)
	if err != nil {
		// Selling by an older definition would be a guess: such a sale is gone.
		w.stream.cfg.Logger.Error("sale definition is not readable", "sale_id", entry.Key(), "error", err)
		w.delete(entry.Key())
		return
	}
	w.known[def.ID] = true
	w.update(def, "")
}

func (w *SaleWatch) delete(id string) {
	if w.known[id] {
		delete(w.known, id)
		w.update(nil, id)
	}
}
