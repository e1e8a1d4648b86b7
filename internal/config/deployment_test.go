package config

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"laneway/internal/secret"
)

// instructions parses a Dockerfile: one line per instruction, continued lines joined, comments removed.
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

// TestTheImageIsStaticAndRunsWithoutRights checks the last stage of the Dockerfile.
func TestTheImageIsStaticAndRunsWithoutRights(t *testing.T) {
	t.Parallel()
	known := []string{"FROM", "WORKDIR", "COPY", "RUN", "ARG", "LABEL", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
	pinned := regexp.MustCompile(`^(scratch|[a-z0-9./-]+:[0-9][a-zA-Z0-9.-]*(@sha256:[0-9a-f]{64})?)( AS [a-z]+)?$`)
	last := map[string]string{} // of the last stage
	static := false
	for _, in := range instructions(t, "../../Dockerfile") {
		name, rest := in[0], in[1]
		if !slices.Contains(known, name) {
			t.Errorf("unknown instruction %s %s", name, rest)
		}
		if name == "FROM" {
			last = map[string]string{}
			if !pinned.MatchString(rest) {
				t.Errorf("FROM %s: no version is named", rest)
			}
		}
		static = static || name == "RUN" && strings.Contains(rest, "CGO_ENABLED=0 go build")
		last[name] = rest
	}
	uid, _, _ := strings.Cut(last["USER"], ":")
	if n, err := strconv.Atoi(uid); err != nil || n < 1000 {
		t.Errorf("USER %q is not a number of a user without rights", last["USER"])
	}
	if last["FROM"] != "scratch" || !static {
		t.Errorf("the image begins from %q, built statically: %v", last["FROM"], static)
	}
	if !strings.Contains(last["HEALTHCHECK"], `"health"]`) || !strings.HasPrefix(last["ENTRYPOINT"], "[") || last["RUN"] != "" || last["STOPSIGNAL"] != "SIGTERM" {
		t.Errorf("HEALTHCHECK %q, ENTRYPOINT %q, RUN %q, STOPSIGNAL %q", last["HEALTHCHECK"], last["ENTRYPOINT"], last["RUN"], last["STOPSIGNAL"])
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

// TestTheComposeFileGivesNoRights checks compose.yaml.
func TestTheComposeFileGivesNoRights(t *testing.T) {
	t.Parallel()
	services := composeServices(t)
	given := map[string][]string{"gateway": nil, "replica": nil, "secrets": {"CHOWN", "DAC_OVERRIDE"}, "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}}
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
	if db := services["postgres"]; len(db.Healthcheck.Test) == 0 || !regexp.MustCompile(`:\d+`).MatchString(db.Image) {
		t.Errorf("the database: %+v", db)
	}
}

// The program of the service `secrets` runs unchanged from compose.yaml, in a directory of the test.
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

// TestUnitGivesNoRightsAndNeverGivesUp checks deploy/laneway.service.
func TestUnitGivesNoRightsAndNeverGivesUp(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/laneway.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"User=laneway", "Group=laneway", "RemoveIPC=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "ProtectProc=invisible", "PrivateDevices=yes", "CapabilityBoundingSet=",
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
