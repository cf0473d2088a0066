package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

const password = "hunter2:/?,#[]@"

func TestPrintConfigHidesSecrets(t *testing.T) {
	key := "a-key-of-the-admin-api"
	t.Setenv("DOORBUSTER_ADMIN_KEY", key)
	path := writeFile(t, "redis-sentinel-password: s3ntinel\nmysql-max-open: 3\n")
	out, err := parse(t, new(Admin), "--print-config", "--config="+path,
		"--mysql=root:"+password+"@tcp(db:3306)/shop?tls=skip-verify",
		"--redis=rediss://user:hunter2%3A@cache:6380/2",
		"--nats=nats://bob:hunter2@n1:4222,nats://token@n2:4222")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "root", "user:", "bob", "token", "s3ntinel", key} {
		if strings.Contains(out, secret) {
			t.Errorf("%q is shown:\n%s", secret, out)
		}
	}
	for _, line := range []string{
		`mysql: "***@tcp(db:3306)/shop?***"`,
		"redis: rediss://***@cache:6380/2",
		"nats: nats://***@n1:4222,nats://***@n2:4222",
		`admin-key: "***"`,
		"# " + path + ":1", "# " + path + ":2", "# flag", "# DOORBUSTER_ADMIN_KEY", "# default",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is missing:\n%s", line, out)
		}
	}
}

func TestPrintedConfigCanBeReadBack(t *testing.T) {
	var first, second Dev
	printed, err := parse(t, &first, "--print-config", "--user-rate=1.5", "--trusted-proxies=10.0.0.0/8,fd00::1", "--sold-out-ttl=15s", "--data=yes: no #1", "--log-level=warn")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(t, &second, "--config="+writeFile(t, printed)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, second) {
		t.Errorf("read back\n%+v, want\n%+v", second, first)
	}
}

func TestPrintConfigHidesEverySecretOfAList(t *testing.T) {
	out, err := parse(t, new(Dev), "--print-config", "--gateway-keys=the-key-of-gateway-1,the-key-of-gateway-2")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "the-key") || strings.Count(out, hidden) != 2 {
		t.Errorf("printed:\n%s", out)
	}
}

func TestErrorsHoldNoSecret(t *testing.T) {
	for _, args := range [][]string{
		{"--redis=redis://user:" + password + "@cache:6379"},
		{"--redis=redis://:hunter2@cache:port/0"},
		{"--redis=hunter2@cache"},
		{"--redis=redis://:hunter2%zz@cache/0"},
		{"--nats=nats://user:" + password + "@n1"},
		{"--nats=nats://hunter2:x:y/z"},
		{"--mysql=root:hunter2/shop"},
		{"--mysql=root:hunter2@tcp(db:3306)"},
		{"--mysql=root:hunter2@tcp(db:3306)/%zzhunter2"},
		{"--mysql=root:hunter2@tcp(db:3306)/"},
		{"--mysql=root:x@tcp(db:3306)/shop?timeout=hunter2"},
		{"--gateway-keys=the-key-of-gateway-1,hunter2"},
	} {
		_, err := parse(t, new(Dev), args...)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestHidingShowsTheRestOfAnAddress(t *testing.T) {
	for text, want := range map[string]string{
		"redis://cache:6379/0":                  "redis://cache:6379/0",
		"redis://:p@cache:6379/0":               "redis://***@cache:6379/0",
		"redis+sentinel://u:p,q@a:1,b:2/main/0": "redis+sentinel://***@a:1,b:2/main/0",
		"https://u:p@keys/set?token=t":          "https://***@keys/set?***",
		"https://keys/set?token=t":              "https://keys/set?***",
		"/etc/doorbuster/keys.json":             "/etc/doorbuster/keys.json",
		"u:p@a:1,b:2":                           "***@a:1,b:2",
	} {
		if got := hideInURLs(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"u:p@tcp(db:3306)/shop":     "***@tcp(db:3306)/shop",
		"u:p?q/r@tcp(db:3306)/shop": "***@tcp(db:3306)/shop",
		"tcp(db:3306)/shop?a=b":     "tcp(db:3306)/shop?***",
		"u:p":                       "***",
	} {
		if got := hideInDSN(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}

// A setting whose name sounds like a secret must be declared one.
func TestSecretsAreDeclared(t *testing.T) {
	sounds := func(flag *kong.Flag) bool {
		for _, word := range []string{"secret", "password", "admin-key", "token"} {
			if strings.Contains(flag.Name, word) {
				return true
			}
		}
		return false
	}
	for _, service := range Services() {
		for _, flag := range service.flags {
			if sounds(flag) && !isSecret(flag) {
				t.Errorf("%s --%s would be shown", service.Name, flag.Name)
			}
		}
	}
}
