package harness

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns a seed for whatever is random in the test and logs it, with the way to repeat the run:
// HARNESS_SEED in the environment sets it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("HARNESS_SEED"); given != "" {
		parsed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatalf("HARNESS_SEED must be a whole number from 0 to 2^64-1: %v", err)
		}
		seed = parsed
	}
	t.Logf("seed %d (repeat with HARNESS_SEED=%d)", seed, seed)
	return seed
}
