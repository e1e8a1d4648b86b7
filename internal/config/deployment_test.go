package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"laneway/internal/secret"
)

// instructions parses a Dockerfile: one line per instruction, continued lines joined, comments
// removed.
func instructions(t *testing.T, file string) [][2]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out [][2]string
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(joined) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		out = append(out, [2]string{strings.ToUpper(word), strings.Join(strings.Fields(rest), " ")})
	}
	return out
}

// TestTheImagesRunWithoutRights checks both images of the Dockerfile: the gateway alone is static,
// and the one for agents has what they need.
func TestTheImagesRunWithoutRights(t *testing.T) {
	t.Parallel()
	known := []string{"FROM", "WORKDIR", "COPY", "RUN", "ARG", "LABEL", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
	pinned := regexp.MustCompile(`^(scratch|[a-z0-9./-]+:[0-9][a-zA-Z0-9.-]*(@sha256:[0-9a-f]{64})?) AS ([a-z]+)$`)
	stages, stage := map[string]map[string]string{}, map[string]string{}
	for _, in := range instructions(t, "../../Dockerfile") {
		name, rest := in[0], in[1]
		if !slices.Contains(known, name) {
			t.Errorf("unknown instruction %s %s", name, rest)
		}
		if name == "FROM" {
			m := pinned.FindStringSubmatch(rest)
			if m == nil {
				t.Fatalf("FROM %s: no version or no name", rest)
			}
			stage = map[string]string{}
			stages[m[3]] = stage
		}
		stage[name] += rest + "\n"
	}
	for name, from := range map[string]string{"gateway": "scratch", "agents": "node:"} {
		last := stages[name]
		uid, _, _ := strings.Cut(last["USER"], ":")
		if n, err := strconv.Atoi(uid); err != nil || n < 1000 {
			t.Errorf("%s: USER %q is not a number of a user without rights", name, last["USER"])
		}
		if !strings.HasPrefix(last["FROM"], from) || !strings.Contains(last["HEALTHCHECK"], `"health"]`) || last["STOPSIGNAL"] != "SIGTERM\n" ||
			last["ENTRYPOINT"] != `["/usr/local/bin/laneway"]`+"\n" || last["CMD"] != `["serve"]`+"\n" {
			t.Errorf("%s: FROM %q, HEALTHCHECK %q, STOPSIGNAL %q, ENTRYPOINT %q, CMD %q", name, last["FROM"], last["HEALTHCHECK"], last["STOPSIGNAL"], last["ENTRYPOINT"], last["CMD"])
		}
	}
	if static := strings.Contains(stages["build"]["RUN"], "CGO_ENABLED=0 go build"); !static || stages["gateway"]["RUN"] != "" {
		t.Errorf("the gateway is built statically: %v, and runs %q", static, stages["gateway"]["RUN"])
	}
	for _, program := range []string{"ca-certificates", "curl", "git", "ripgrep", "npm install --global"} {
		if !strings.Contains(stages["agents"]["RUN"], program) {
			t.Errorf("the image for agents has no %s", program)
		}
	}
}

type composeService struct {
	Image       string
	Command     []string
	Environment map[string]string
	Profiles    []string
	Ports       []string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	CapAdd      []string `yaml:"cap_add"`
	SecurityOpt []string `yaml:"security_opt"`
	Privileged  bool
	User        string
	MemLimit    string `yaml:"mem_limit"`
	StopGrace   string `yaml:"stop_grace_period"`
	Healthcheck struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

func composeServices(t *testing.T) map[string]composeService {
	t.Helper()
	text, err := os.ReadFile("../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Services map[string]composeService }
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c.Services
}

// TestTheMountedConfigurationOfComposeLoads checks deploy/compose.config.yaml.
func TestTheMountedConfigurationOfComposeLoads(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/compose.config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checkMountedConfig(t, "compose.config.yaml", regexp.MustCompile(`(?m)^# (queue|limits|budgets):`).ReplaceAllString(string(text), "$1:"))
}

// TestTheComposeFileGivesNoRights checks compose.yaml.
func TestTheComposeFileGivesNoRights(t *testing.T) {
	t.Parallel()
	services := composeServices(t)
	given := map[string][]string{"gateway": nil, "replica": nil, "prometheus": nil, "secrets": {"CHOWN", "DAC_OVERRIDE"}, "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}}
	if len(services) != len(given) {
		t.Errorf("%d services, want %d", len(services), len(given))
	}
	for name, rights := range given {
		c := services[name]
		if c.Privileged || !slices.Equal(c.CapDrop, []string{"ALL"}) || !slices.Equal(c.CapAdd, rights) || !slices.Contains(c.SecurityOpt, "no-new-privileges:true") || !c.ReadOnly && name != "postgres" {
			t.Errorf("%s has rights: %+v", name, c)
		}
		for _, port := range c.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("port %s of %s is open to others", port, name)
			}
		}
	}
	for _, name := range []string{"gateway", "replica"} {
		g := services[name]
		if grace, _ := strconv.Atoi(strings.TrimSuffix(g.StopGrace, "s")); grace < 37 {
			t.Errorf("stop_grace_period %s of %s is shorter than the drain timeout of 30s and its end", g.StopGrace, name)
		}
		if g.DependsOn["postgres"].Condition != "service_healthy" || g.DependsOn["secrets"].Condition != "service_completed_successfully" {
			t.Errorf("%s waits for %+v", name, g.DependsOn)
		}
		if !slices.Equal(g.Healthcheck.Test, []string{"CMD", "/usr/local/bin/laneway", "health"}) { // the image has no other program
			t.Errorf("the health check of %s is %q", name, g.Healthcheck.Test)
		}
		if g.Environment["TELEGRAM_TOKEN"] != "${TELEGRAM_TOKEN:-}" {
			t.Errorf("%s gets TELEGRAM_TOKEN %q", name, g.Environment["TELEGRAM_TOKEN"])
		}
	}
	if !slices.Equal(services["replica"].Profiles, []string{"replicas"}) || services["gateway"].Profiles != nil {
		t.Error("the replica is no profile of its own")
	}
	for _, name := range []string{"gateway", "replica", "prometheus"} {
		if services[name].MemLimit == "" {
			t.Errorf("%s has no bound of its memory", name)
		}
	}
	if !slices.Equal(services["prometheus"].Profiles, []string{"monitoring"}) || services["prometheus"].User != "65534:65532" {
		t.Errorf("prometheus runs in the profiles %q as %s, and the token is readable by the group 65532", services["prometheus"].Profiles, services["prometheus"].User)
	}
	if db := services["postgres"]; len(db.Healthcheck.Test) == 0 || !regexp.MustCompile(`:\d+`).MatchString(db.Image) {
		t.Errorf("the database: %+v", db)
	}
}

// The program of the service `secrets` runs unchanged from compose.yaml, in a directory of the
// test.
func TestTheComposeFileGeneratesSecretsOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	owner := "chown"
	if os.Geteuid() != 0 {
		owner = ":" // only root can change the owner of a file
	}
	program := strings.NewReplacer("$$", "$", "cd /secrets", "cd "+dir, "chown", owner).Replace(composeServices(t)["secrets"].Command[0])
	generate := func(env ...string) map[string]string {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", program)
		cmd.Env = append(env, "PATH="+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		files := map[string]string{}
		for name, mode := range map[string]os.FileMode{"token": 0o640, "pgpass": 0o640, "password": 0o600} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: mode %v, want %v", name, info.Mode(), mode)
			}
			files[name] = strings.TrimSpace(string(text))
		}
		return files
	}
	first := generate("POSTGRES_PASSWORD=", "LANEWAY_TOKEN=")
	if !Strong(secret.New(first["token"])) || len(first["password"]) != 64 || first["password"] == first["token"] || first["pgpass"] != "postgres:5432:laneway:laneway:"+first["password"] {
		t.Errorf("generated %q", first)
	}
	if second := generate("POSTGRES_PASSWORD=other"); !maps.Equal(first, second) {
		t.Errorf("a second start made %q of %q", second, first)
	}
	for name := range first {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if kept := generate("POSTGRES_PASSWORD=p", "LANEWAY_TOKEN=t"); kept["password"] != "p" || kept["token"] != "t" {
		t.Errorf("an earlier .env became %q", kept)
	}
}

// release writes the files of a release for this system with a program that prints what it is, and
// returns the directory.
func release(t *testing.T) string {
	t.Helper()
	dir, stage := t.TempDir(), t.TempDir()
	name := "laneway_1.2.3_" + runtime.GOOS + "_" + runtime.GOARCH
	err := errors.Join(os.Mkdir(filepath.Join(stage, name), 0o755),
		os.WriteFile(filepath.Join(stage, name, "laneway"), []byte("#!/bin/sh\necho laneway 1.2.3\n"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../deploy/package/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("@VERSION@", "1.2.3", "@ADDRESS@", "https://releases.example.invalid").Replace(string(text))
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", `tar -C "$1" -czf "$2/$3.tar.gz" "$3"; cd "$2"; sha256sum -- *.tar.gz >SHA256SUMS`, "sh", stage, dir, name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "install.sh"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The installer takes the files beside it. An archive that is not the one of the release is not
// installed, and what was installed before stays.
func TestTheInstallerRefusesAWrongSum(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	bin := filepath.Join(t.TempDir(), "bin")
	install := func(from string, env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(from, "install.sh"))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANEWAY_BIN=" + bin}
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	prints := func() string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "laneway")).CombinedOutput()
		return fmt.Sprint(strings.TrimSpace(string(out)), err)
	}
	if out, err := install(release(t)); err != nil || !strings.Contains(out, "laneway 1.2.3 is in "+bin) || !strings.Contains(out, "export PATH=") {
		t.Fatalf("%v: %s", err, out)
	}
	if got := prints(); got != "laneway 1.2.3<nil>" {
		t.Errorf("the installed program: %s", got)
	}
	archive, sums := "laneway_1.2.3_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz", "SHA256SUMS"
	for want, change := range map[string]func(dir string) error{
		"damaged or was changed": func(dir string) error { return os.WriteFile(filepath.Join(dir, archive), []byte("other"), 0o600) },
		"does not have": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, sums), []byte("0  other.tar.gz\n"), 0o600)
		},
		"has no SHA256SUMS":    func(dir string) error { return os.Remove(filepath.Join(dir, sums)) },
		"has no laneway_1.2.3": func(dir string) error { return os.Remove(filepath.Join(dir, archive)) },
	} {
		dir := release(t)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if out, err := install(dir, "LANEWAY_FROM="+dir); err == nil || !strings.Contains(out, want) || prints() != "laneway 1.2.3<nil>" {
			t.Errorf("want a refusal with %q: %v, %s; installed: %s", want, err, out, prints())
		}
	}
}

// The manifests are read as the gateway and Kubernetes read them: real settings, no rights, probes
// and a grace period that fit the program.
func TestManifestsOfKubernetesGiveNoRights(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"laneway.yaml", "postgres.yaml"} {
		text, err := os.ReadFile("../../deploy/kubernetes/" + file)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]bool{}
		for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var o kubernetesObject
			if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kinds[o.Kind] = true
			if o.Kind == "ConfigMap" {
				checkMountedConfig(t, file, o.Data["config.yaml"])
			}
			if o.Kind != "Deployment" {
				continue
			}
			pod := o.Spec.Template.Spec
			c := pod.Containers[0]
			if pod.Grace < 37 || !pod.Security.NonRoot || pod.Security.User != 65532 || pod.Security.FSGroup != 65532 || !c.Security.ReadOnly || c.Security.Escalation == nil || *c.Security.Escalation || !slices.Equal(c.Security.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: the pod has rights, or too little time to drain: %+v", file, pod)
			}
			if c.Liveness.HTTP.Path != "/healthz" || c.Readiness.HTTP.Path != "/readyz" || c.Startup.HTTP.Path != "/healthz" {
				t.Errorf("%s: probes %+v %+v %+v", file, c.Startup, c.Liveness, c.Readiness)
			}
			if sqlite := file == "laneway.yaml"; sqlite != (o.Spec.Strategy.Type == "Recreate") || sqlite != (o.Spec.Replicas == 1) {
				t.Errorf("%s: %d replicas, strategy %q", file, o.Spec.Replicas, o.Spec.Strategy.Type)
			}
		}
		if !kinds["Deployment"] || !kinds["Service"] || !kinds["ConfigMap"] || !kinds["PersistentVolumeClaim"] {
			t.Errorf("%s has the kinds %v", file, slices.Sorted(maps.Keys(kinds)))
		}
	}
}

type kubernetesObject struct {
	Kind string
	Data map[string]string
	Spec struct {
		Replicas int
		Strategy struct{ Type string }
		Template struct {
			Spec struct {
				Grace    int `yaml:"terminationGracePeriodSeconds"` //nolint:tagliatelle // of Kubernetes
				Security struct {
					NonRoot bool  `yaml:"runAsNonRoot"` //nolint:tagliatelle // of Kubernetes
					User    int64 `yaml:"runAsUser"`    //nolint:tagliatelle // of Kubernetes
					FSGroup int64 `yaml:"fsGroup"`      //nolint:tagliatelle // of Kubernetes
				} `yaml:"securityContext"` //nolint:tagliatelle // of Kubernetes
				Containers []struct {
					Startup   probe `yaml:"startupProbe"`   //nolint:tagliatelle // of Kubernetes
					Liveness  probe `yaml:"livenessProbe"`  //nolint:tagliatelle // of Kubernetes
					Readiness probe `yaml:"readinessProbe"` //nolint:tagliatelle // of Kubernetes
					Security  struct {
						Escalation   *bool `yaml:"allowPrivilegeEscalation"` //nolint:tagliatelle // of Kubernetes
						ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`   //nolint:tagliatelle // of Kubernetes
						Capabilities struct{ Drop []string }
					} `yaml:"securityContext"` //nolint:tagliatelle // of Kubernetes
				}
			}
		}
	}
}

type probe struct {
	HTTP struct{ Path string } `yaml:"httpGet"` //nolint:tagliatelle // of Kubernetes
}

// checkMountedConfig loads a configuration of a deployment, with the secrets that it mounts.
func checkMountedConfig(t *testing.T, file, text string) {
	t.Helper()
	dir := t.TempDir()
	for name, secret := range map[string]string{"token": "8f14e45fceea167a5a36dedd4bea2543d9c1e7b0aa52", "telegram-token": "123456789:AAHk3uGm1q0Zf9vX2sYw8Rb7Tn6Lc5Jd4Pe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = strings.ReplaceAll(text, "/var/run/secrets/laneway", dir)
	uncommented := strings.NewReplacer("# channels:", "channels:", "#   telegram:", "  telegram:").Replace(text)
	for _, config := range []string{text, uncommented} {
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(Options{File: path, LookupEnv: environ("LANEWAY_DATA", filepath.Join(dir, "data"))})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if _, err := Preflight(loaded); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestUnitGivesNoRightsAndNeverGivesUp checks deploy/laneway.service.
func TestUnitGivesNoRightsAndNeverGivesUp(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/laneway.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"Type=notify", "WatchdogSec=60s", "User=laneway", "Group=laneway", "RemoveIPC=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "ProtectProc=invisible", "PrivateDevices=yes", "CapabilityBoundingSet=",
		"SystemCallFilter=@system-service", "SystemCallFilter=~@privileged", "SystemCallErrorNumber=EPERM", "RestrictNamespaces=yes", "UMask=0077", "StateDirectoryMode=0700",
		"RestartPreventExitStatus=78", "KillMode=mixed", "StartLimitIntervalSec=0",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	if strings.Contains(string(text), "--print-config") {
		t.Error("the unit writes the configuration to the journal at every start")
	}
	for _, name := range []string{"TasksMax", "MemoryMax"} {
		if !regexp.MustCompile(`(?m)^` + name + `=[1-9][0-9]*[GM]?$`).Match(text) {
			t.Errorf("the unit has no bound %s", name)
		}
	}
}

// A new setting without documentation, or a changed default, fails here; make generate writes the
// documentation again.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	keys, err := Keys()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]Key{}
	for _, k := range keys {
		if k.Meaning == "" {
			t.Errorf("%s has no meaning", k.Path)
		}
		k.Meaning = ""
		documented[k.Path] = k
	}
	shape := Shape()
	if len(shape) != len(documented) || len(shape) < 150 {
		t.Errorf("%d keys are documented, there are %d", len(documented), len(shape))
	}
	for _, k := range shape {
		k.Struct, k.Field = "", ""
		if documented[k.Path] != k {
			t.Errorf("documented as %+v, is %+v", documented[k.Path], k)
		}
	}
}

// The documented default of each number can be given in its variable.
func TestDocumentedVariablesAreTaken(t *testing.T) {
	t.Parallel()
	for _, k := range Shape() {
		if strings.Contains(k.Path, "<") || k.Type != "number" || k.Default == "" {
			continue
		}
		loaded, err := Load(Options{LookupEnv: environ(k.Variable, k.Default, "LANEWAY_DATA", t.TempDir())})
		if err != nil {
			t.Errorf("%s=%s: %v", k.Variable, k.Default, err)
			continue
		}
		if loaded.Source(k.Path).Kind != SourceEnv {
			t.Errorf("%s is not taken from %s", k.Path, k.Variable)
		}
	}
}

func TestMisspelledVariablesAreReported(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.UnknownVariables([]string{
		"PATH", "LANEWAY_URL", "LANEWAY_CONFIG", "LANEWAY_TOKEN", "LANEWAY_LANE_MAIN", "GOCLAW_LANE_MAIN", "LANEWAY_DATABASE_URL", "LANEWAY_AGENTS_MAIN_MODEL",
		"LANEWAY_SERVICE_HOST", "LANEWAY_SERVICE_PORT", "LANEWAY_SERVICE_PORT_HTTP", "LANEWAY_PORT", "LANEWAY_PORT_18790_TCP", "LANEWAY_PORT_18790_TCP_ADDR",
		"LANEWAY_QUEUE_CAPP", "LANEWAY_AGENTS_CODER_MODEL", "LANEWAY_NO_AUTH",
	})
	want := []string{
		"LANEWAY_AGENTS_CODER_MODEL is not a setting and has no effect",
		"LANEWAY_NO_AUTH is not a setting and has no effect",
		"LANEWAY_QUEUE_CAPP is not a setting and has no effect; did you mean LANEWAY_QUEUE_CAP?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDeploymentFilesUseRealSettings checks that the image, the compose file and the unit set only
// existing settings.
func TestDeploymentFilesUseRealSettings(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	ofCompose := []string{"LANEWAY_VERSION", "LANEWAY_PORT", "LANEWAY_REPLICA_PORT", "LANEWAY_MEMORY", "LANEWAY_TARGET"} // read by docker compose itself
	for _, file := range []string{"Dockerfile", "compose.yaml", "deploy/laneway.service"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`LANEWAY_[A-Z_]+`).FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no variable", file)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(ofCompose, name) })
		for _, sentence := range loaded.UnknownVariables(names) {
			t.Errorf("%s: %s", file, sentence)
		}
	}
}

// TestTheComposeFilesGatewayMayStart loads the settings of compose.yaml.
func TestTheComposeFilesGatewayMayStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("8f14e45fceea167a5a36dedd4bea2543d9c1e7b0aa52\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"LANEWAY_DATA", filepath.Join(dir, "data")}
	for name, value := range composeServices(t)["gateway"].Environment {
		value = regexp.MustCompile(`\$\{[A-Z_]+:-\}`).ReplaceAllString(value, "") // as when nothing is set
		env = append(env, name, strings.Replace(value, "/secrets", dir, 1))
	}
	loaded, err := Load(Options{LookupEnv: environ(env...)})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Preflight(loaded)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"forwarded addresses are ignored: LANEWAY_TRUSTED_PROXIES is empty",
		"database: the server postgres is not verified; use sslmode=verify-full",
	}
	if !slices.Equal(plan.Warnings, want) {
		t.Errorf("warned %q, want %q", plan.Warnings, want)
	}
}
