package main

import (
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/doorbuster/doorbuster/pkg/harness"
)

var listeningLine = regexp.MustCompile(`"msg":"listening".*"address":"([^"]+)"`)

// startServices starts the four services, each as a process with the same variables,
// and returns their addresses.
func startServices(t *testing.T, variables map[string]string) map[string]string {
	t.Helper()
	var env []string
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	started := map[string]*harness.ChildProcess{}
	for _, name := range []string{"admin", "reconciler", "order", "grab"} {
		started[name] = harness.Process(t, harness.Binary(t, "services/"+name), []string{"--listen=127.0.0.1:0"}, env)
	}
	addresses := map[string]string{}
	for name, process := range started {
		harness.Eventually(t, time.Minute, name+" is ready", func() (bool, string) {
			match := listeningLine.FindStringSubmatch(process.Stderr())
			if match == nil {
				return false, process.Output()
			}
			addresses[name] = "http://" + match[1]
			status, _ := (&shop{address: addresses[name]}).ask(t, http.MethodGet, "/readyz", "", "")
			return status == http.StatusOK, process.Output()
		})
	}
	return addresses
}

// As README.md has it: one set of variables for the four services and the command line.
func TestTheCommandLineFindsEachOfTheFourServices(t *testing.T) {
	unset(t)
	redis, nats, mysql := harness.Redis(t), harness.NATS(t), harness.MariaDB(t)
	variables := readmeVariables(t)
	maps.Copy(variables, map[string]string{
		"DOORBUSTER_REDIS": redis.URL(), "DOORBUSTER_NATS": nats.URL(), "DOORBUSTER_MYSQL": mysql.DSN("shop"),
		"DOORBUSTER_GATEWAY_KEYS": "a-key-for-the-gateway",
	})
	at := startServices(t, variables)
	variables["DOORBUSTER_URL"] = at["admin"]
	for name, value := range variables {
		t.Setenv(name, value)
	}
	succeed(t, "sale", "create", "--id=lamp", "--name=Lamp", "--item=LAMP:20", "--approve")
	succeed(t, "quota", "put", "sms", "--limit=10", "--window=day")
	wrong := func(want string, args ...string) {
		t.Helper()
		if code, _, stderr := command(t, args...); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
	wrong("is that the grab service? Its address is --grab-url (or DOORBUSTER_GRAB_URL), else --url", "quota", "deduct", "sms", "1")
	wrong("is that the order service? Its address is --order-url (or DOORBUSTER_ORDER_URL), else --url", "quota", "return", "sms", "d", "1", "--id=r1")
	wrong("is that the grab service? Its address is --grab-url (or DOORBUSTER_GRAB_URL), else --url", "load", "lamp")
	wrong("is that the admin service? Its address is --url (or DOORBUSTER_URL)", "sale", "list", "--url="+at["grab"])

	t.Setenv("DOORBUSTER_GRAB_URL", at["grab"])
	t.Setenv("DOORBUSTER_ORDER_URL", at["order"])
	wrong("give --gateway-key (or DOORBUSTER_GATEWAY_KEY)", "quota", "deduct", "sms", "1")
	t.Setenv("DOORBUSTER_GATEWAY_KEY", "a-key-for-the-gateway")
	deducted := succeed(t, "quota", "deduct", "sms", "3", "--key=m1")
	contains(t, "deduct", deducted, "allowed, 7 left")
	_, id, _ := strings.Cut(strings.TrimSpace(deducted), ": ")
	harness.Eventually(t, 30*time.Second, "the deduction is written and returned", func() (bool, string) {
		code, stdout, stderr := command(t, "quota", "return", "sms", id, "2", "--id=r1")
		return code == exitDone && strings.Contains(stdout, "2 of 3 returned"), stdout + stderr
	})
	contains(t, "load", succeed(t, "load", "lamp", "--users=100"), "20 distinct winners", "0 contradictions")
	// What is typed wins over what is exported.
	wrong("is that the grab service?", "load", "lamp", "--url="+at["order"])
	contains(t, "typed", succeed(t, "load", "lamp", "--url="+at["admin"], "--grab-url="+at["grab"], "--users=5"), "5 grabs")
	contains(t, "verify", succeed(t, "verify", "lamp", "--wait=30s"), "0 violated")
}
