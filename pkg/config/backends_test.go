package config

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisURLs(t *testing.T) {
	type options = redis.UniversalOptions
	for _, test := range []struct {
		url  string
		want options
		tls  bool
	}{
		{"redis://cache", options{Addrs: []string{"cache:6379"}}, false},
		{"redis://cache:6380/3", options{Addrs: []string{"cache:6380"}, DB: 3}, false},
		{"redis://[::1]:6380/", options{Addrs: []string{"[::1]:6380"}}, false},
		{"redis://[::1]", options{Addrs: []string{"[::1]:6379"}}, false},
		{"rediss://u:p%40%2f@cache", options{Addrs: []string{"cache:6379"}, Username: "u", Password: "p@/"}, true},
		{"redis://:p@q@cache", options{Addrs: []string{"cache:6379"}, Password: "p@q"}, false},
		{"redis+sentinel://u:p@a:1,b/main/2", options{Addrs: []string{"a:1", "b:26379"}, MasterName: "main", DB: 2, Username: "u", Password: "p"}, false},
		{"rediss+sentinel://a/main", options{Addrs: []string{"a:26379"}, MasterName: "main"}, true},
		{"redis+cluster://a:1,b:2", options{Addrs: []string{"a:1", "b:2"}, IsClusterMode: true}, false},
		{"rediss+cluster://a", options{Addrs: []string{"a:6379"}, IsClusterMode: true}, true},
	} {
		t.Run(test.url, func(t *testing.T) {
			given := Redis{URL: test.url, DialTimeout: 2 * time.Second, Timeout: time.Second, Pool: 64, SentinelPassword: "s"}
			got, err := given.Options()
			if err != nil {
				t.Fatal(err)
			}
			test.want.SentinelPassword = "s"
			test.want.MaxRetries = -1
			test.want.ContextTimeoutEnabled = true
			test.want.DialTimeout, test.want.DialerRetries = 2*time.Second, 1
			test.want.ReadTimeout, test.want.WriteTimeout, test.want.PoolTimeout = time.Second, time.Second, time.Second
			test.want.PoolSize = 64
			if test.tls {
				test.want.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
			}
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("got  %+v\nwant %+v", *got, test.want)
			}
		})
	}
}

func TestRedisURLsThatAreRefused(t *testing.T) {
	for _, url := range []string{
		"cache:6379", "http://cache", "redis://", "redis://a,b", "redis://a/x", "redis://a/-1", "redis://a/1/2",
		"redis://a:0", "redis://a:65536", "redis://a:b:1", "redis://a?max_retries=3", "redis://a#x",
		"redis+sentinel://a", "redis+cluster://a/0", "redis+cluster://a,,b", "redis://a b",
	} {
		given := Redis{URL: url}
		if err := given.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--redis: ") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A call whose answer was lost may have been executed: the client must not repeat it by itself.
func TestRedisClientMakesNoRetries(t *testing.T) {
	given := Redis{URL: "redis://127.0.0.1:1", DialTimeout: time.Second, Timeout: time.Second, Pool: 1}
	options, err := given.Options()
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options).(*redis.Client)
	defer client.Close()
	if client.Options().MaxRetries != 0 { // go-redis turns -1 into "none"
		t.Errorf("MaxRetries is %d", client.Options().MaxRetries)
	}
}

func TestNATSURLs(t *testing.T) {
	for url, fine := range map[string]bool{
		"nats://a:4222": true, "a:4222": true, "nats://u:p@a:4222, tls://b:4222": true, "wss://a": true,
		"http://a": false, "nats://": false, "nats://a:4222,": false, "nats://a:b:c": false,
	} {
		given := NATS{URL: url}
		if err := given.Validate(); (err == nil) != fine {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestDSNIsMadeToFitTheLedger(t *testing.T) {
	given := MySQL{
		DSN:         "root:p@ss/word@tcp(db)/shop?parseTime=false&loc=Local&charset=latin1&time_zone=SYSTEM&timeout=1h&collation=utf8mb4_bin",
		DialTimeout: 5 * time.Second, Timeout: 30 * time.Second,
	}
	got, err := given.Config()
	if err != nil {
		t.Fatal(err)
	}
	want := "root:p@ss/word@tcp(db:3306)/shop?charset=utf8mb4&collation=utf8mb4_bin&interpolateParams=true&parseTime=true" +
		"&readTimeout=30s&rejectReadOnly=true&timeout=5s&writeTimeout=30s&time_zone=%27%2B00%3A00%27"
	if got.FormatDSN() != want {
		t.Errorf("got  %s\nwant %s", got.FormatDSN(), want)
	}
}
