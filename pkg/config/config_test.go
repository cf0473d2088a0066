package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// parse parses for a program that does not exit, and returns what it printed.
func parse(t *testing.T, grammar any, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	_, err := Parse(Program{Name: "test", Stdout: &out, Stderr: &out, Exit: func(int) {}}, grammar, args)
	return out.String(), err
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
}

func TestDefaultsDifferByService(t *testing.T) {
	var grab Grab
	if _, err := parse(t, &grab, "--trust-user-header"); err != nil {
		t.Fatal(err)
	}
	var dev Dev
	if _, err := parse(t, &dev); err != nil {
		t.Fatal(err)
	}
	if grab.HTTP.Listen != "127.0.0.1:8081" || grab.Redis.URL != "redis://127.0.0.1:6379/0" || grab.Grab.BatchMax != 192 || grab.Log.Format != "json" {
		t.Errorf("grab: %+v", grab)
	}
	if dev.HTTP.Listen != "127.0.0.1:8080" || dev.Redis.Given() || dev.NATS.Given() || dev.MySQL.Given() || dev.Log.Format != "text" {
		t.Errorf("dev: %+v", dev)
	}
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	path := writeFile(t, "batch-max: 11\nqueue-max: 22\nin-flight-max: 33\n")
	t.Setenv("DOORBUSTER_QUEUE_MAX", "222")
	t.Setenv("DOORBUSTER_BATCH_MAX", "111")
	t.Setenv("DOORBUSTER_CONFIG", path)
	var grab Grab
	if _, err := parse(t, &grab, "--trust-user-header", "--batch-max=999"); err != nil {
		t.Fatal(err)
	}
	got := [4]int{grab.Grab.BatchMax, grab.Grab.QueueMax, grab.Grab.InFlightMax, grab.Grab.UnackedBatches}
	if want := [4]int{999, 222, 33, 3}; got != want {
		t.Errorf("flag, environment, file, default: %v, want %v", got, want)
	}
}

func TestSettingsWorkInACommandLineWithCommands(t *testing.T) {
	var cli struct {
		Dev   Dev   `cmd:""`
		Order Order `cmd:""`
	}
	path := writeFile(t, "fetch-max: 7\n")
	ctx, err := Parse(Program{Name: "test"}, &cli, []string{"--config", path, "dev", "--chunk=5"})
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Command() != "dev" || cli.Dev.Order.FetchMax != 7 || cli.Dev.Reconcile.Chunk != 5 {
		t.Errorf("command %q, settings %+v", ctx.Command(), cli.Dev)
	}
	_, err = Parse(Program{Name: "test"}, &cli, []string{"dev", "--chunk=0"})
	wantError(t, err, "--chunk 0: must be 1 to 100000")
}

func TestValuesOutOfRangeAreRefusedWithTheRange(t *testing.T) {
	grab := []string{"--trust-user-header"}
	order := []string{"--trust-user-header", "--mysql=u:p@tcp(h:1)/db"}
	const longKey = "a-key-of-sixteen-bytes"
	admin := []string{order[1], "--admin-key=" + longKey}
	for _, test := range []struct {
		grammar any
		base    []string
		flag    string
		want    string
	}{
		{new(Grab), grab, "--batch-max=0", "--batch-max 0: must be 1 to 1000"},
		{new(Grab), grab, "--batch-max=1001", "--batch-max 1001: must be 1 to 1000"},
		{new(Grab), grab, "--sold-out-ttl=-1s", "--sold-out-ttl -1s: must be 0s to 1m"},
		{new(Grab), grab, "--redis-timeout=9ms", "--redis-timeout 9ms: must be 10ms to 1m"},
		{new(Grab), grab, "--user-rate=NaN", "--user-rate NaN: must be 0 to 1000000"},
		{new(Grab), grab, "--log-level=loud", `--log-level must be one of "debug","info","warn","error" but got "loud"`},
		{new(Grab), grab, "--listen=8081", "--listen 8081: must be HOST:PORT with a port from 0 to 65535"},
		{new(Grab), grab, "--admin-listen=:x", "--admin-listen :x: must be HOST:PORT with a port from 0 to 65535"},
		{new(Grab), grab, "--trusted-proxies=10.0.0.0/8,10.0.0.0/33", "--trusted-proxies 10.0.0.0/33: must be a network such as 10.0.0.0/8 or an address, and not everything"},
		{new(Grab), grab, "--trusted-proxies=::/0", "--trusted-proxies ::/0: must be a network such as 10.0.0.0/8 or an address, and not everything"},
		{new(Grab), grab, "--forwarded-header=x-real-ip", `--forwarded-header must be one of "x-forwarded-for","forwarded" but got "x-real-ip"`},
		{new(Grab), grab, "--gateway-keys=long-enough-for-a-key,short", "--gateway-keys: must be at least 16 characters"},
		{new(Grab), nil, "--batch-max=1", "one of --jwt-secret, --jwks or --trust-user-header must be given"},
		{new(Grab), nil, "--jwt-secret=short", "--jwt-secret: must be at least 32 characters"},
		{new(Grab), []string{"--jwks=f"}, "--jwt-secret=" + strings.Repeat("s", 32), "--jwt-secret and --jwks can't be used together"},
		{new(Order), order, "--stream-replicas=6", "--stream-replicas 6: must be 1 to 5"},
		{new(Order), order, "--retry-max=100ms", "--retry-max: must be at least --retry-base"},
		{new(Order), nil, "--trust-user-header", "--mysql: must be given"},
		{new(Reconciler), nil, "--chunk=1", "--mysql: must be given"},
		{new(Admin), order[1:], "--listen=:1", "missing flags: --admin-key=KEY"},
		{new(Admin), order[1:], "--admin-key=fifteen-bytes-x", "--admin-key: must be at least 16 characters"},
		{new(Admin), admin, "--admin-keys=ann=" + longKey + ",ben", "--admin-keys: entry 2 must be NAME=KEY: a name of 1 to 64 letters, digits and . _ @ -, and a key of at least 16 characters"},
		{new(Admin), admin, "--admin-keys=ann smith=" + longKey, "--admin-keys: entry 1 must be NAME=KEY: a name of 1 to 64 letters, digits and . _ @ -, and a key of at least 16 characters"},
		{new(Admin), admin, "--admin-keys=ann=" + longKey + ",ben=" + longKey, "--admin-keys: entry 2 has a key that another one has, too"},
		{new(Dev), nil, "--chunk=many", `--chunk: expected a valid 64 bit int but got "many"`},
		{new(Dev), nil, "--ack-wait=5", `--ack-wait: expected duration but got "5": time: missing unit in duration "5"`},
		{new(Dev), nil, "--bach-maxx=5", "unknown flag --bach-maxx, did you mean \"--batch-max\"?"},
	} {
		t.Run(test.flag, func(t *testing.T) {
			_, err := parse(t, test.grammar, append(test.base, test.flag)...)
			wantError(t, err, test.want)
		})
	}
}

func TestRefusedValueTellsWhereItCameFrom(t *testing.T) {
	path := writeFile(t, "# tuning\nbatch-max: 0\n")
	_, err := parse(t, new(Grab), "--trust-user-header", "--config="+path)
	wantError(t, err, "--batch-max 0: must be 1 to 1000 (from "+path+":2)")
	t.Setenv("DOORBUSTER_BATCH_MAX", "2000")
	_, err = parse(t, new(Grab), "--trust-user-header", "--config="+path)
	wantError(t, err, "--batch-max 2000: must be 1 to 1000 (from DOORBUSTER_BATCH_MAX)")
}

func TestUnknownVariableIsRefused(t *testing.T) {
	t.Setenv("DOORBUSTER_BATCHMAX", "7")
	_, err := parse(t, new(Grab)) // which would also lack an identity
	wantError(t, err, "unknown environment variable DOORBUSTER_BATCHMAX (did you mean DOORBUSTER_BATCH_MAX?)")
}

func TestUnknownVariableWithoutANeighbourHasNoHint(t *testing.T) {
	t.Setenv("DOORBUSTER_SOMETHING_ELSE_ENTIRELY", "7")
	_, err := parse(t, new(Dev))
	wantError(t, err, "unknown environment variable DOORBUSTER_SOMETHING_ELSE_ENTIRELY")
}

func TestVariablesThatAreNotOursToRefuse(t *testing.T) {
	for name, value := range map[string]string{
		"DOORBUSTER_GRANTS_PER_TX":            "500",                 // of the order service
		"DOORBUSTER_GRAB_SERVICE_HOST":        "10.0.0.1",            // the rest are Kubernetes's
		"DOORBUSTER_GRAB_SERVICE_PORT":        "8081",                //
		"DOORBUSTER_GRAB_SERVICE_PORT_HTTP":   "8081",                //
		"DOORBUSTER_GRAB_PORT":                "tcp://10.0.0.1:8081", //
		"DOORBUSTER_GRAB_PORT_8081_TCP":       "tcp://10.0.0.1:8081", //
		"DOORBUSTER_GRAB_PORT_8081_TCP_PROTO": "tcp",                 //
		"DOORBUSTER_GRAB_PORT_8081_TCP_ADDR":  "10.0.0.1",            //
		"DOORBUSTERS_ARE_SALES":               "1",                   // not our prefix
	} {
		t.Setenv(name, value)
	}
	if _, err := parse(t, new(Grab), "--trust-user-header"); err != nil {
		t.Error(err)
	}
}

func TestFileIsReadStrictly(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"misspelt key", "batch-max: 1\nbatch_max: 2\n", ":2: unknown key batch_max (did you mean batch-max?)"},
		{"key of another service", "batch-max: 1\n\nack-wait: 2s\n", ":3: unknown key ack-wait"},
		{"key given twice", "batch-max: 1\nbatch-max: 2\n", ":2: key batch-max is already set in line 1"},
		{"nested value", "batch-max:\n  deep: 2\n", ":1: key batch-max: must be a plain value"},
		{"list in a list", "nats: [a, [b]]\n", ":1: key nats: must be a list of plain values"},
		{"not a mapping", "- batch-max\n", ":1: expected lines of the form key: value"},
		{"a file names no file", "config: other.yaml\n", ":1: unknown key config"},
		{"a secret stays out of a syntax error", "jwt-secret: \"hunter2\nbatch-max: 1\n", ":1: could not find end character of double-quoted text"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeFile(t, test.text)
			_, err := parse(t, new(Grab), "--trust-user-header", "--config="+path)
			wantError(t, err, path+test.want)
		})
	}
}

func TestFileHoldsEveryKindOfValue(t *testing.T) {
	path := writeFile(t, `---
# comments and blank lines are fine
trust-user-header: true
nats: [nats://a:1, "nats://b:2"]
user-rate: 2.5
queue-max: 0x10

sold-out-ttl: 250ms
log-level: 'debug'
jwt-issuer: >-
  https://issuer
jwt-audience:
`)
	var grab Grab
	if _, err := parse(t, &grab, "--config", path); err != nil {
		t.Fatal(err)
	}
	if !grab.Identity.TrustUserHeader || grab.NATS.URL != "nats://a:1,nats://b:2" || grab.Grab.UserRate != 2.5 ||
		grab.Grab.QueueMax != 16 || grab.Grab.SoldOutTTL != 250*time.Millisecond || grab.Log.Level != "debug" ||
		grab.Identity.JWTIssuer != "https://issuer" || grab.Identity.JWTAudience != "" {
		t.Errorf("settings: %+v", grab)
	}
}

func TestMissingFileIsAnError(t *testing.T) {
	_, err := parse(t, new(Grab), "--config=/nowhere/settings.yaml")
	wantError(t, err, "read configuration: open /nowhere/settings.yaml: no such file or directory")
}

func TestVersionIsPrinted(t *testing.T) {
	out, _ := parse(t, new(Grab), "--version")
	if strings.TrimSpace(out) != Version() || Version() == "" {
		t.Errorf("printed %q, version is %q", out, Version())
	}
}

func TestHelpShowsRangeAndVariable(t *testing.T) {
	out, _ := parse(t, new(Grab), "--help")
	words := strings.Join(strings.Fields(out), " ")
	if !strings.Contains(words, "Allowed: 1 to 1000 ($DOORBUSTER_BATCH_MAX).") {
		t.Errorf("help:\n%s", out)
	}
}

func TestEverySettingIsDescribedAndBounded(t *testing.T) {
	for _, service := range Services() {
		for _, flag := range service.flags {
			if flag.Help == "" {
				t.Errorf("%s --%s has no meaning", service.Name, flag.Name)
			}
			l, err := limitsOf(flag)
			if err != nil {
				t.Errorf("%s: %v", service.Name, err)
			}
			if isNumber(flag) && (l.min == nil || l.max == nil) {
				t.Errorf("%s --%s has no range", service.Name, flag.Name)
			}
			if !flag.HasDefault {
				continue
			}
			if err := flag.Reset(); err != nil {
				t.Errorf("%s --%s: default: %v", service.Name, flag.Name, err)
			}
			if rule, _ := breach(flag); rule != "" {
				t.Errorf("%s --%s: default %s %s", service.Name, flag.Name, flag.Default, rule)
			}
		}
	}
}

func isNumber(flag *kong.Flag) bool {
	switch flag.Target.Interface().(type) {
	case int, float64, time.Duration:
		return true
	default:
		return false
	}
}
