package fulfil_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A receiver as docs/webhooks.md shows it, and what it says to a call that nobody signed.
func Example_receiver() {
	hook, err := standardwebhooks.NewWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		log.Fatal("no webhook secret: ", err)
	}
	http.HandleFunc("POST /doorbuster", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		if err := hook.Verify(body, r.Header); err != nil { // the bytes as they came, not parsed and written again
			http.Error(w, "not signed by Doorbuster", http.StatusUnauthorized)
			return
		}
		var event struct {
			ID   string `json:"id"`   // the header webhook-id, the same in every repeat
			Type string `json:"type"` // order.created or order.paid
			Data struct {
				OrderID string `json:"order_id"`
				User    string `json:"user"`
				Items   []struct {
					SKU      string `json:"sku"`
					Quantity int64  `json:"quantity"`
				} `json:"items"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &event); err != nil {
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		// In one transaction: if event.ID is known, nothing; else note it and ship event.Data.
		w.WriteHeader(http.StatusNoContent)
	})

	answer := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/doorbuster", strings.NewReader("{}")))
	fmt.Println(answer.Code)
	// Output: 401
}
