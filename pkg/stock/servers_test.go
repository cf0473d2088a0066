package stock_test

import (
	"github.com/redis/go-redis/v9"
)

// changeReplID gives a server another master_replid, as a promotion does.
func changeReplID(t tester, client redis.UniversalClient) {
	t.Helper()
	if err := client.Do(t.Context(), "DEBUG", "CHANGE-REPL-ID").Err(); err != nil {
		t.Fatal(err)
	}
}
