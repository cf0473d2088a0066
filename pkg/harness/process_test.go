package harness

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shell runs a script as the program under test.
func shell(t testing.TB, script string, env ...string) *ChildProcess {
	t.Helper()
	return Process(t, "/bin/sh", []string{"-c", script}, env)
}

func TestProcessIsWaitedForByLineAndByExit(t *testing.T) {
	p := shell(t, `echo starting; echo "listening on 127.0.0.1:80"; echo oops >&2; read -r forever <"$FIFO"`,
		"FIFO="+fifo(t))
	match := p.WaitLine(regexp.MustCompile(`listening on (\S+)`), 10*time.Second)
	if match[1] != "127.0.0.1:80" {
		t.Errorf("matched %q", match)
	}
	if !p.Running() {
		t.Error("not running any more")
	}
	p.Kill()
	if code := p.Wait(); code != -1 {
		t.Errorf("exit code %d after SIGKILL, want -1", code)
	}
	if p.Running() {
		t.Error("still running after SIGKILL")
	}
	if p.Stdout() != "starting\nlistening on 127.0.0.1:80\n" || p.Stderr() != "oops\n" {
		t.Errorf("stdout %q, stderr %q", p.Stdout(), p.Stderr())
	}
}

func TestInterruptLetsTheProcessCleanUp(t *testing.T) {
	p := shell(t, `trap 'echo cleaned; exit 7' INT; echo ready; while :; do read -r forever <"$FIFO"; done`,
		"FIFO="+fifo(t))
	p.WaitLine(regexp.MustCompile(`^ready$`), 10*time.Second)
	p.Interrupt()
	if code := p.Wait(); code != 7 || !strings.Contains(p.Stdout(), "cleaned") {
		t.Errorf("exit code %d, output %q", code, p.Output())
	}
}

func TestWaitLineFailsWhenTheProcessEndsWithoutIt(t *testing.T) {
	got := failure(t, func(t testing.TB) {
		shell(t, "echo no such luck").WaitLine(regexp.MustCompile("ready"), time.Minute)
	})
	if !strings.Contains(got, "ended without a line like ready") || !strings.Contains(got, "no such luck") {
		t.Errorf("failed with %q", got)
	}
}

func TestAnUnfinishedLineDoesNotMatch(t *testing.T) {
	if match := matchLine(regexp.MustCompile(`port (\d+)`), "port 80"); match != nil {
		t.Errorf("matched %q, of which more may come", match)
	}
}

func TestProcessSeesNoSettingsButItsOwn(t *testing.T) {
	t.Setenv("DOORBUSTER_REDIS", "redis://elsewhere:6379")
	p := shell(t, `echo "$DOORBUSTER_REDIS|$DOORBUSTER_NATS"`, "DOORBUSTER_NATS=nats://here:4222")
	p.Wait()
	if got := p.Stdout(); got != "|nats://here:4222\n" {
		t.Errorf("environment is %q", got)
	}
}

func TestBinaryBuildsAMainPackageOnce(t *testing.T) {
	first := Binary(t, "pkg/harness/testdata/hello")
	if second := Binary(t, "pkg/harness/testdata/hello"); second != first {
		t.Errorf("built %s and %s", first, second)
	}
	p := Process(t, first, []string{"crowd"}, nil)
	if code := p.Wait(); code != 0 || p.Stdout() != "hello crowd\n" {
		t.Errorf("exit code %d, output %q", code, p.Output())
	}
}

func TestPausedServerAcceptsButDoesNotAnswer(t *testing.T) {
	monitor := Addr(t)
	server := NATS(t, WithNATSConfig(`http: "`+monitor+`"`))
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	ask := func() error {
		answer, err := client.Get("http://" + monitor + "/healthz")
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	must(t, ask())

	server.Pause()
	if !listens(server.Addr()) {
		t.Error("a paused server refuses connections")
	}
	if err := ask(); err == nil || !os.IsTimeout(err) {
		t.Errorf("a paused server answered: %v", err)
	}
	server.Resume()

	must(t, ask())
}
