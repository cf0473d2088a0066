package stock

// All keys of a sale carry the hash tag {SALE}, so that a sale lives on one
// shard of a Redis Cluster. No other file builds a key.
const prefix = "doorbuster:"

// usedPrefix begins the name of a used key, and its size in meta.
const usedPrefix = "used:"

// Keys builds the keys of one sale.
type Keys struct {
	base string
}

// KeysOf returns the key builder of a sale.
func KeysOf(saleID string) Keys { return Keys{base: prefix + "{" + saleID + "}:"} }

// Meta is a hash: era, gen, fence, and the sizes buyers, grants, applied, and
// used:LIMIT:PERIOD of every such key as "SIZE EXPIRES", in Unix ms, 0 for never; ends, in
// Unix ms, where all keys expire together.
func (k Keys) Meta() string { return k.base + "meta" }

// Stock is a string: the remaining units of an item, -1 is unlimited.
func (k Keys) Stock(sku string) string { return k.base + "stock:" + sku }

// Buyers is a hash: user -> "UNITS ORDER_ID", the units held and the last order.
// Who gave everything back keeps an entry of 0 units.
func (k Keys) Buyers() string { return k.base + "buyers" }

// Grants is a hash: order id -> "PROCESS NUMBER\n" + record; "- 0" for one that a
// restore wrote.
func (k Keys) Grants() string { return k.base + "grants" }

// Applied is a hash: giveback id -> units.
func (k Keys) Applied() string { return k.base + "applied" }

// Outboxes is a hash: process -> "ACKED BARRED", the number of its last batch
// known to be in the stream, and the last number barred.
func (k Keys) Outboxes() string { return k.base + "outboxes" }

// Outbox is a list: the batches of one grab process, newest first.
func (k Keys) Outbox(process string) string { return k.base + "outbox:" + process }

// Rate is a string with a TTL: "TOKENS AT", the grabs that may be decided at once
// and when that was counted, in Unix microseconds of the server.
func (k Keys) Rate() string { return k.base + "rate" }

// Used is a hash: subject -> units used of a limit in a period. Subjects are users,
// addresses, or "*" for everybody. It expires some time after its period.
func (k Keys) Used(limit, period string) string { return k.base + usedPrefix + limit + ":" + period }

// temporary returns the builder of the keys a restore is prepared in.
func (k Keys) temporary(token string) Keys { return Keys{base: k.base + "tmp:" + token + ":"} }

// core lists the keys that every fenced script starts with.
func (k Keys) core() []string {
	return []string{k.Meta(), k.Buyers(), k.Grants(), k.Applied()}
}

// ProcessLease is a string with a TTL: it exists while the grab process lives.
func ProcessLease(process string) string { return prefix + "process:" + process }
