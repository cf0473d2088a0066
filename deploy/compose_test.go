// Package deploy_test checks what operators deploy: compose.yaml, nats.conf and the Dockerfile.
package deploy_test

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/doorbuster/doorbuster/pkg/config"
	"github.com/doorbuster/doorbuster/pkg/harness"
	"github.com/nats-io/nats-server/v2/server"
)

func TestMain(m *testing.M) { harness.Main(m) }

// ours are the containers that run this module's services, with the configuration each one reads.
var ours = map[string]any{
	"grab":       new(config.Grab),
	"order":      new(config.Order),
	"reconciler": new(config.Reconciler),
	"admin":      new(config.Admin),
}

var secrets = types.Mapping{
	"MYSQL_PASSWORD":        "trial-password-of-mysql",
	"DOORBUSTER_ADMIN_KEY":  "trial-key-of-the-admin-service",
	"DOORBUSTER_JWT_SECRET": "trial-secret-of-at-least-32-characters",
}

// load reads compose.yaml as docker compose does: schema, variables, references between its parts.
func load(t *testing.T, environment types.Mapping) (*types.Project, error) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  root,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(root, "compose.yaml")}},
		Environment: maps.Clone(environment), // The loader adds to it.
	})
}

func mustLoad(t *testing.T) *types.Project {
	t.Helper()
	project, err := load(t, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeRefusesToStartWithoutItsSecrets(t *testing.T) {
	for secret := range secrets {
		environment := types.Mapping{}
		for name, value := range secrets {
			if name != secret {
				environment[name] = value
			}
		}
		if _, err := load(t, environment); err == nil || !strings.Contains(err.Error(), secret) {
			t.Errorf("without %s: error %v, want one that names it", secret, err)
		}
	}
}

func TestComposeRunsEveryServiceAndBackend(t *testing.T) {
	names := mustLoad(t).ServiceNames()
	want := []string{"admin", "grab", "mysql", "nats", "order", "reconciler", "redis"}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("services %v, want %v", names, want)
	}
}

func TestEveryContainerHasAHealthCheck(t *testing.T) {
	for name, service := range mustLoad(t).Services {
		if service.HealthCheck == nil || len(service.HealthCheck.Test) == 0 || service.HealthCheck.Disable {
			t.Errorf("%s has no health check", name)
		}
	}
}

func TestServicesWaitForHealthyBackends(t *testing.T) {
	project := mustLoad(t)
	for name := range ours {
		service := project.Services[name]
		for _, backend := range []string{"redis", "nats", "mysql"} {
			if backend == "mysql" && name == "grab" {
				continue // Grab nodes never talk to MySQL.
			}
			if got := service.DependsOn[backend].Condition; got != types.ServiceConditionHealthy {
				t.Errorf("%s depends on %s with condition %q", name, backend, got)
			}
		}
	}
}

// Every service starts with the environment it is given: nothing unknown, nothing missing, nothing out of range.
func TestServicesAcceptTheirEnvironment(t *testing.T) {
	project := mustLoad(t)
	for name, settings := range ours {
		t.Run(name, func(t *testing.T) {
			for variable, value := range project.Services[name].Environment {
				t.Setenv(variable, *value)
			}
			program := config.Program{Name: name, Stdout: io.Discard, Stderr: io.Discard}
			if _, err := config.Parse(program, settings, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// The grab service asks for them before batches and deductions, the order service before returns.
func TestGatewayKeysReachTheServicesThatAskForThem(t *testing.T) {
	environment := maps.Clone(secrets)
	environment["DOORBUSTER_GATEWAY_KEYS"] = "trial-key-of-one-gateway,trial-key-of-another"
	project, err := load(t, environment)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grab", "order"} {
		got := project.Services[name].Environment["DOORBUSTER_GATEWAY_KEYS"]
		if got == nil || *got != environment["DOORBUSTER_GATEWAY_KEYS"] {
			t.Errorf("%s does not get the gateway keys", name)
		}
	}
}

func TestServicesListenWhereTheyAreLookedFor(t *testing.T) {
	project := mustLoad(t)
	for name := range ours {
		service := project.Services[name]
		_, port, _ := strings.Cut(*service.Environment["DOORBUSTER_LISTEN"], ":")
		if len(service.Ports) != 1 || service.Ports[0].Published != port {
			t.Errorf("%s listens on %s, published: %v", name, port, service.Ports)
		}
		if check := strings.Join(service.HealthCheck.Test, " "); !strings.Contains(check, ":"+port+"/healthz") {
			t.Errorf("%s listens on %s, health check: %s", name, port, check)
		}
	}
}

func TestOnlyWhatTheCrowdCallsIsPublished(t *testing.T) {
	for name, service := range mustLoad(t).Services {
		for _, port := range service.Ports {
			public := port.HostIP != "127.0.0.1"
			if public != (name == "grab" || name == "order") {
				t.Errorf("%s publishes %s on %q", name, port.Published, port.HostIP)
			}
			if listen := service.Environment["DOORBUSTER_ADMIN_LISTEN"]; public && (listen == nil || strings.HasSuffix(*listen, ":"+port.Published)) {
				t.Errorf("%s publishes its metrics with %s", name, port.Published)
			}
		}
	}
}

// Redis is started with compose.yaml's own options, to see that it takes them and what comes of them.
func TestRedisNeverEvicts(t *testing.T) {
	command := mustLoad(t).Services["redis"].Command
	if len(command)%2 != 1 || command[0] != "redis-server" {
		t.Fatalf("command %q is not redis-server with pairs of options", command)
	}
	var options []harness.RedisOption
	for i := 1; i < len(command); i += 2 {
		options = append(options, harness.WithConfig(strings.TrimPrefix(command[i], "--"), command[i+1]))
	}
	client := harness.Redis(t, options...).Client()
	for setting, want := range map[string]string{
		"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec",
	} {
		got, err := client.ConfigGet(t.Context(), setting).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got[setting] != want {
			t.Errorf("%s is %q, want %q", setting, got[setting], want)
		}
	}
}

func TestNATSFlushesBeforeItAcknowledges(t *testing.T) {
	options := natsOptions(t, "nats.conf")
	nats := mustLoad(t).Services["nats"]
	here, err := filepath.Abs("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	var data, mounted bool
	for _, volume := range nats.Volumes {
		data = data || volume.Target == options.StoreDir && volume.Type == types.VolumeTypeVolume
		mounted = mounted || volume.Source == here && slices.Contains(nats.Command, volume.Target)
	}
	if !data {
		t.Errorf("no volume keeps %s: %v", options.StoreDir, nats.Volumes)
	}
	if !mounted {
		t.Errorf("command %q does not read nats.conf from %v", nats.Command, nats.Volumes)
	}
}

// Without a container around it nothing but its address keeps a server without passwords from strangers.
func TestNATSOfThisMachineIsForNobodyElse(t *testing.T) {
	options := natsOptions(t, "nats-local.conf")
	if options.Host != "127.0.0.1" || options.HTTPPort != 0 {
		t.Errorf("it listens on %s, and for monitoring on port %d", options.Host, options.HTTPPort)
	}
	if !filepath.IsAbs(options.StoreDir) || strings.HasPrefix(options.StoreDir, os.TempDir()) {
		t.Errorf("it keeps its data in %q", options.StoreDir)
	}
}

// natsOptions reads a configuration as nats-server does; each has JetStream, flushed before it acknowledges.
func natsOptions(t *testing.T, file string) *server.Options {
	t.Helper()
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !options.JetStream || !options.SyncAlways {
		t.Errorf("%s: JetStream %v, sync always %v", file, options.JetStream, options.SyncAlways)
	}
	return options
}

func TestMySQLFlushesEachCommit(t *testing.T) {
	command := mustLoad(t).Services["mysql"].Command
	for _, option := range []string{"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"} {
		if !slices.Contains(command, option) {
			t.Errorf("command %q lacks %s", command, option)
		}
	}
}

func TestServicesHaveNoPowersTheyDoNotNeed(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER ([0-9]+):[0-9]+$`).FindStringSubmatch(readFile(t, "../Dockerfile"))
	if user == nil || user[1] == "0" {
		t.Errorf("Dockerfile's user is %v, want a number other than 0", user)
	}
	project := mustLoad(t)
	for name := range ours {
		service := project.Services[name]
		if service.User != "" || service.Privileged {
			t.Errorf("%s runs as %q, privileged %v", name, service.User, service.Privileged)
		}
		if !service.ReadOnly || !slices.Contains(service.CapDrop, "ALL") {
			t.Errorf("%s: read only %v, dropped capabilities %v", name, service.ReadOnly, service.CapDrop)
		}
		if arg := service.Build.Args["SERVICE"]; arg == nil || *arg != name {
			t.Errorf("%s is built with SERVICE %v", name, arg)
		}
	}
}

// The image's toolchain never downloads another one, so it has to be the one that go.mod asks for.
func TestDockerfileBuildsWithTheGoOfTheModule(t *testing.T) {
	module := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(readFile(t, "../go.mod"))
	image := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\S+)$`).FindStringSubmatch(readFile(t, "../Dockerfile"))
	if module == nil || image == nil || module[1] != image[1] {
		t.Errorf("go.mod has %v, Dockerfile has %v", module, image)
	}
}

func TestExampleEnvironmentNamesEverySecret(t *testing.T) {
	example := readFile(t, "env.example")
	for secret := range secrets {
		if !regexp.MustCompile(`(?m)^` + secret + `=$`).MatchString(example) {
			t.Errorf("env.example does not name %s, or gives it a value", secret)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
