package harness

import (
	"regexp"
	"testing"
)

func TestNamesAreUniqueAndFitASale(t *testing.T) {
	allowed := regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	taken := map[string]bool{}
	for range 1000 {
		name := Name(t)
		if !allowed.MatchString(name) {
			t.Fatalf("%q does not match %s", name, allowed)
		}
		if taken[name] {
			t.Fatalf("%q was given twice", name)
		}
		taken[name] = true
	}
}

func TestNamesBeginLikeTheirTest(t *testing.T) {
	for testName, want := range map[string]string{
		"TestGrab":                        "grab",
		"TestGrab/two_users":              "grab-two-users",
		"TestGrab/#00":                    "grab-00",
		"Test42Users":                     "t42users",
		"TestÜ":                           "t",
		"TestNoOversellWhenRedisIsKilled": "nooversellwhenredisi",
		"BenchmarkGrab-8":                 "benchmarkgrab-8",
	} {
		if got := readable(testName); got != want {
			t.Errorf("readable(%q) is %q, want %q", testName, got, want)
		}
	}
}

func TestSeedCanBeSetFromOutside(t *testing.T) {
	t.Setenv("HARNESS_SEED", "18446744073709551615")
	if got := Seed(t); got != 1<<64-1 {
		t.Errorf("seed is %d", got)
	}
	t.Setenv("HARNESS_SEED", "")
	if Seed(t) == Seed(t) {
		t.Error("two seeds are the same")
	}
}
