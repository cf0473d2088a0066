package load

import (
	"net/http"
	"strings"
	"testing"
)

func TestALookTellsWhetherThereIsASale(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/sales/s" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"sale_not_found","detail":"no such sale"}`))
		}
	})
	if err := Look(t.Context(), Config{URL: url, SaleID: "s"}); err != nil {
		t.Error(err)
	}
	if err := Look(t.Context(), Config{URL: url, SaleID: "other"}); err == nil || !strings.Contains(err.Error(), "404 sale_not_found") {
		t.Errorf("no such sale: %v", err)
	}
}
