package stock

import (
	"strings"
	"testing"
)

func TestLifeOfAServer(t *testing.T) {
	for name, c := range map[string]struct {
		info string
		want serverLife
		err  string // part of it, "" for none
	}{
		"master":         {"redis_version:7.0.15 run_id:r role:master master_replid:x master_replid2:y", serverLife{"r", "x"}, ""},
		"a later one":    {"redis_version:10.1 run_id:r role:master master_replid:x", serverLife{"r", "x"}, ""},
		"miniredis":      {"connected_clients:1", serverLife{}, ""},
		"replica":        {"redis_version:7.0.15 run_id:r role:slave master_replid:x", serverLife{}, "not a master"},
		"too old":        {"redis_version:6.2.14 run_id:r role:master master_replid:x", serverLife{}, "7.0 or later"},
		"no version":     {"redis_version:unstable run_id:r role:master master_replid:x", serverLife{}, "7.0 or later"},
		"hides its id":   {"redis_version:7.0.15 run_id:r role:master", serverLife{}, "master_replid"},
		"hides its life": {"redis_version:7.0.15 role:master master_replid:x", serverLife{}, "run_id"},
	} {
		got, err := lifeOf(strings.ReplaceAll(c.info, " ", "\r\n"))
		if (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got error %v, want %q", name, err, c.err)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
