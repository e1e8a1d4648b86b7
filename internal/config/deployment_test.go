package config

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// instructions reads a Dockerfile: one line per instruction, continued lines joined, comments left out.
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

// TestTheImageIsStaticAndRunsWithoutRights reads the Dockerfile as its last stage will be run.
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

// TestTheComposeFileGivesNoRights reads compose.yaml.
func TestTheComposeFileGivesNoRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Services map[string]struct {
			Image       string
			Ports       []string
			ReadOnly    bool     `yaml:"read_only"`
			CapDrop     []string `yaml:"cap_drop"`
			CapAdd      []string `yaml:"cap_add"`
			SecurityOpt []string `yaml:"security_opt"`
			Privileged  bool
			StopGrace   string `yaml:"stop_grace_period"`
			Healthcheck map[string]any
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	g, db := c.Services["gateway"], c.Services["postgres"]
	if !g.ReadOnly || g.Privileged || !slices.Equal(g.CapDrop, []string{"ALL"}) || !slices.Contains(g.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("the gateway has rights: %+v", g)
	}
	if len(g.CapAdd) > 0 {
		t.Errorf("the gateway is given %v", g.CapAdd)
	}
	given := []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}
	if db.Privileged || !slices.Equal(db.CapDrop, []string{"ALL"}) || !slices.Equal(db.CapAdd, given) || !slices.Contains(db.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("the database has rights: %+v", db)
	}
	for _, port := range append(g.Ports, db.Ports...) {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("port %s is open to others", port)
		}
	}
	if grace, _ := strconv.Atoi(strings.TrimSuffix(g.StopGrace, "s")); grace < 37 {
		t.Errorf("stop_grace_period %s is shorter than the drain timeout of 30s and its end", g.StopGrace)
	}
	if g.DependsOn["postgres"].Condition != "service_healthy" || db.Healthcheck == nil || !regexp.MustCompile(`:\d+`).MatchString(db.Image) {
		t.Errorf("the database: %+v, wanted as %+v", db, g.DependsOn)
	}
}

// TestTheUnitGivesNoRights reads deploy/laneway.service.
func TestTheUnitGivesNoRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/laneway.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{
		"User=laneway", "Group=laneway", "RemoveIPC=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "ProtectProc=invisible", "PrivateDevices=yes", "CapabilityBoundingSet=",
		"SystemCallFilter=@system-service", "SystemCallFilter=~@privileged", "SystemCallErrorNumber=EPERM", "RestrictNamespaces=yes", "UMask=0077", "StateDirectoryMode=0700",
		"RestartPreventExitStatus=78", "KillMode=mixed",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	for _, name := range []string{"TasksMax", "MemoryMax"} {
		if !regexp.MustCompile(`(?m)^` + name + `=[1-9][0-9]*[GM]?$`).Match(text) {
			t.Errorf("the unit has no bound %s", name)
		}
	}
}
