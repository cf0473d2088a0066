package fulfil

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// signer signs with several keys at once, so that receivers can change from one to
// another at their own pace.
type signer []*standardwebhooks.Webhook

// newSigner returns no signer when there is no key.
func newSigner(keys [][]byte) (signer, error) {
	s := make(signer, len(keys))
	for i, key := range keys {
		if len(key) == 0 {
			return nil, errors.New("fulfil: a key is empty")
		}
		var err error
		if s[i], err = standardwebhooks.NewWebhookRaw(key); err != nil {
			return nil, fmt.Errorf("fulfil: key %d: %w", i, err)
		}
	}
	return s, nil
}

// sign sets the headers of a webhook. at is the time of the call.
func (s signer) sign(header http.Header, id string, at time.Time, body []byte) error {
	signatures := make([]string, len(s))
	for i, key := range s {
		var err error
		if signatures[i], err = key.Sign(id, at, body); err != nil {
			return fmt.Errorf("sign webhook: %w", err)
		}
	}
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
