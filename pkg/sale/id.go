package sale

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// An order id is SALE.OWNER+DIGEST: the sale, a dot, and 26 base32 characters
// (16 bytes): 4 bytes of SHA-256 of the user, then 12 bytes of SHA-256 of
// sale, user and idempotency key. So one key always names one order, whoever
// computes it and after whatever loss, and the owner of an id that no store
// knows can still be told from a stranger.
const (
	ownerBytes  = 4
	digestBytes = 12
)

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// OrderID returns the order id of a user's idempotency key in a sale. An empty
// key stands for a request that asked for no idempotency: every call returns
// another id.
func OrderID(saleID, user, key string) string {
	if key == "" {
		key = "\x00" + rand.Text()
	}
	named := make([]byte, 0, 256)
	for _, part := range []string{saleID, user, key} {
		named = binary.BigEndian.AppendUint64(named, uint64(len(part)))
		named = append(named, part...)
	}
	digest := sha256.Sum256(named)
	var id [ownerBytes + digestBytes]byte
	binary.BigEndian.PutUint32(id[:ownerBytes], OwnerTag(user))
	copy(id[ownerBytes:], digest[:])
	return saleID + "." + idEncoding.EncodeToString(id[:])
}

// OwnerTag is the part of an order id that stands for its user. Different
// users may share a tag (1 in 2^32).
func OwnerTag(user string) uint32 {
	sum := sha256.Sum256([]byte(user))
	return binary.BigEndian.Uint32(sum[:ownerBytes])
}

// ParseOrderID splits an order id into its sale and its owner's tag. ok is
// false for anything OrderID can't have made.
func ParseOrderID(id string) (saleID string, owner uint32, ok bool) {
	saleID, code, found := strings.Cut(id, ".")
	raw, err := idEncoding.DecodeString(code)
	if !found || !ValidID(saleID) || err != nil || len(raw) != ownerBytes+digestBytes {
		return "", 0, false
	}
	return saleID, binary.BigEndian.Uint32(raw[:ownerBytes]), true
}
