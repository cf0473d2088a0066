package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// ErrNoSale says that the catalogue does not hold the sale.
var ErrNoSale = errors.New("no such sale in the catalogue")

// PutSale stores a sale definition for the grab nodes to see. A lower revision never
// overwrites a higher one: then nothing is stored, and there is no error, because
// what the caller knows is simply old. The fulfilment is left out: its address may hold
// a token, and grab nodes don't call it.
func (s *Stream) PutSale(ctx context.Context, def *sale.Sale) error {
	shown := *def
	shown.Fulfilment = nil
	data, err := json.Marshal(&shown)
	if err == nil {
		err = s.change(ctx, SalesBucket, def.ID, func(ctx context.Context, bucket jetstream.KeyValue, have jetstream.KeyValueEntry) error {
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
	err := s.change(ctx, SalesBucket, saleID, func(ctx context.Context, bucket jetstream.KeyValue, have jetstream.KeyValueEntry) error {
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
	watch
	update func(def *sale.Sale, deletedID string)
	known  map[string]bool // sales that update was told of
}

// WatchSales returns a watch that calls update for every sale there is, and then
// for every change: with the definition, or with nil and the id of a sale that is gone. The
// calls come from one goroutine, Run's. After a lost connection all sales are told
// again, so update must take a definition that it has already.
func (s *Stream) WatchSales(update func(def *sale.Sale, deletedID string)) *SaleWatch {
	w := &SaleWatch{update: update, known: map[string]bool{}}
	w.watch = newWatch(s, SalesBucket, w.take, w.loaded)
	return w
}

// loaded ends an initial load: what an earlier watch had told of and this one did
// not find is gone.
func (w *SaleWatch) loaded(seen map[string]bool) {
	for id := range w.known {
		if !seen[id] {
			w.delete(id)
		}
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
