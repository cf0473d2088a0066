package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// output is a terminal's side that may be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command runs one command in this process.
func command(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err output
	code = run(t.Context(), args, terminal{&out, &err})
	return code, out.String(), err.String()
}

// succeed runs a command that must succeed and returns what it printed.
func succeed(t testing.TB, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(t, args...)
	if code != 0 {
		t.Fatalf("doorbuster %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

func contains(t testing.TB, what, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", what, want, text)
		}
	}
}

var readyLine = regexp.MustCompile(`^doorbuster dev ready address=(http://127\.0\.0\.1:\d+) admin_key=(\S+) \(development only[^)]*\)\n$`)

// shop is a dev in this process, which the commands find by the environment.
type shop struct {
	address string
	stop    func() int // ends it and returns its exit code
}

func openShop(t testing.TB, args ...string) *shop {
	t.Helper()
	t.Setenv("DOORBUSTER_URL", "")
	must(t, os.Unsetenv("DOORBUSTER_URL"))
	ctx, cancel := context.WithCancel(context.Background())
	var out, err output
	ended := make(chan int, 1)
	args = append([]string{"dev", "--listen=127.0.0.1:0", "--log-level=error", "--data=" + t.TempDir()}, args...)
	go func() { ended <- run(ctx, args, terminal{&out, &err}) }()
	s := &shop{stop: sync.OnceValue(func() int {
		cancel()
		return <-ended
	})}
	t.Cleanup(func() { s.stop() })
	var match []string
	harness.Eventually(t, time.Minute, "dev is ready", func() (bool, string) {
		match = readyLine.FindStringSubmatch(out.String())
		if match == nil && len(ended) > 0 {
			t.Fatalf("dev ended: %s%s", &out, &err)
		}
		return match != nil, out.String() + err.String()
	})
	s.address = match[1]
	t.Setenv("DOORBUSTER_URL", s.address)
	t.Setenv("DOORBUSTER_ADMIN_KEY", match[2])
	return s
}

// ask makes one request as a user.
func (s *shop) ask(t testing.TB, method, path, user, key string) (status int, body map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.address+path, nil)
	must(t, err)
	request.Header.Set("X-User-Id", user)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	must(t, json.Unmarshal(text, &body))
	return response.StatusCode, body
}

// grab grabs until there is an answer that decides, as a client does.
func (s *shop) grab(t testing.TB, saleID, user, key string) (order string) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, user+" gets an answer", func() (bool, string) {
		status, body := s.ask(t, http.MethodPost, "/v1/sales/"+saleID+"/grabs", user, key)
		order, _ = body["order_id"].(string)
		text, _ := json.Marshal(body)
		return status == http.StatusCreated, string(text)
	})
	return order
}
