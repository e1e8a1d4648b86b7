package teste2e

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// asUsers is a command, with the exit status and a part of the output for root, for a user without access to the gateway's files, and for
// that user with their own token that may write.
type asUsers struct {
	args                string // separated by spaces
	root, plain, holder int
	rootPrints          string // "" = any output
	holderPrints        string
}

const (
	noRights = "permission denied"
	tooFew   = "operator.admin"
)

// everyCommand is the command line, in an order in which one prepares the next. %D is a world-writable directory, %S the state directory.
var everyCommand = []asUsers{
	{"version", 0, 0, 0, "laneway", "laneway"},
	{"completion bash", 0, 0, 0, "complete", "complete"},
	{"config keys log", 0, 0, 0, "LANEWAY_LOG_LEVEL", "LANEWAY_LOG_LEVEL"},
	{"config init -", 0, 0, 0, "agents:", "agents:"},
	{"cron next --every 1h -n 2", 0, 0, 0, "", ""},
	{"health", 0, 0, 0, "ok", "ok"},
	{"health --ready", 0, 0, 0, "ok", "ok"},
	{"serve", 78, 78, 78, "is a credential of the unit of another user", noRights},
	{"send hello", 0, 1, 0, "hello", "hello"},
	{"chat", 0, 1, 0, "", ""},
	{"status", 0, 1, 0, "gateway", "gateway"},
	{"agents list", 0, 1, 0, "main (default)", "main (default)"},
	{"agents detect", 0, 0, 0, "claude", "claude"},
	{"usage", 0, 1, 0, "", ""},
	{"mcp", 0, 1, 0, "", ""},
	{"runs", 0, 1, 0, "", ""},
	{"runs --state ended", 0, 1, 0, "answered", "answered"},
	{"runs none", 1, 1, 1, "", "none"},
	{"questions list", 0, 1, 0, "no questions", "no questions"},
	{"questions answer none 1", 1, 1, 1, "", "no open question"},
	{"tasks list", 0, 1, 0, "", ""},
	{"tasks show none", 1, 1, 1, "", "none"},
	{"tasks stop none", 0, 1, 0, "nothing to stop", "nothing to stop"},
	{"logs --lines 3 --file %S/gateway.log", 0, 1, 1, "msg=", noRights},
	{"sessions list", 0, 1, 0, "agent:main:main", "agent:main:main"},
	{"sessions show agent:main:main", 0, 1, 0, "hello", "hello"},
	{"sessions search hello", 0, 1, 0, "hello", "hello"},
	{"toc day", 0, 1, 0, "", ""},
	{"toc week", 0, 1, 0, "", ""},
	{"toc month", 0, 1, 0, "", ""},
	{"sessions stop agent:main:main", 0, 1, 0, "", ""},
	{"sessions reset agent:main:main", 0, 1, 0, "", ""},
	{"sessions delete agent:main:gone --yes", 1, 1, 1, "", ""},
	{"cron add --every 1h --name tea --message tea", 0, 1, 1, "tea", tooFew},
	{"cron list", 0, 1, 0, "tea", "tea"},
	{"cron get tea", 0, 1, 0, "tea", "tea"},
	{"cron edit tea --every 2h --yes", 0, 1, 1, "", tooFew},
	{"cron pause tea", 0, 1, 1, "", tooFew},
	{"cron resume tea", 0, 1, 1, "", tooFew},
	{"cron run tea --wait", 0, 1, 1, "", tooFew},
	{"cron runs tea", 0, 1, 0, "", ""},
	{"cron cancel tea", 0, 1, 0, "", ""},
	{"cron why tea 9:00", 0, 1, 0, "made later", "made later"},
	{"cron backfill tea --from 2026-01-01T00:00:00Z --to 2026-01-01T03:00:00Z --dry-run", 0, 1, 1, "", tooFew},
	{"cron export", 0, 1, 0, "tea", "tea"},
	{"cron import %D/jobs.yaml", 0, 1, 1, "", tooFew},
	{"scheduler list", 0, 1, 0, "tea", "tea"},
	{"scheduler status tea", 0, 1, 0, "tea", "tea"},
	{"scheduler pause tea", 0, 1, 1, "", tooFew},
	{"scheduler resume tea", 0, 1, 1, "", tooFew},
	{"scheduler run tea", 0, 1, 1, "", tooFew},
	{"cron rm tea", 0, 1, 1, "", tooFew},
	{"pair list", 0, 1, 1, "", tooFew},
	{"pair approve 01900000-0000-7000-8000-000000000000", 1, 1, 1, "", ""},
	{"pair dismiss 01900000-0000-7000-8000-000000000000", 1, 1, 1, "", ""},
	{"pair revoke 17", 1, 1, 1, "", ""},
	{"token create ann --scope read", 0, 78, 78, "shown only now", noRights},
	{"dashboard --print", 0, 78, 78, "#token=", noRights},
	{"token list", 0, 78, 78, "ann", noRights},
	{"token revoke ann", 0, 78, 78, "ann", noRights},
	{"migrate status", 0, 78, 78, "applied", noRights},
	{"migrate up", 1, 78, 78, "runuser -u ", noRights},
	{"migrate down --yes", 1, 78, 78, "", noRights},
	{"store copy --to sqlite:%D/copy.db", 1, 78, 78, "", noRights},
	{"backup %D/backup", 0, 78, 78, "the database", noRights},
	{"doctor", 0, 1, 1, "ok       credential", noRights},
	{"release --yes", 0, 78, 78, "is not held", noRights},
	{"hold --reason moving", 0, 78, 78, "is held", noRights},
}

// leavesOf returns the commands that can be called, from the binary's own completion. No command has more than two words.
func (h *serverHost) leavesOf(words ...string) []string {
	switch {
	case len(words) == 2, strings.Join(words, " ") == "completion": // the following words are values
		return []string{strings.Join(words, " ")}
	}
	out, code := h.run(nil, nil, append(append([]string{"__complete", "--"}, words...), "")...)
	if code != 0 {
		h.t.Errorf("the commands below %v: %s", words, out)
	}
	below := strings.Fields(out)
	if len(below) == 0 {
		return []string{strings.Join(words, " ")}
	}
	leaves := make([][]string, len(below))
	var wait sync.WaitGroup
	for i, word := range below {
		wait.Go(func() { leaves[i] = h.leavesOf(append(slices.Clone(words), word)...) })
	}
	wait.Wait()
	return slices.Concat(leaves...)
}

// Every command runs beside a gateway of another user, with a configuration of root and a secret in a directory of credentials. Root can
// use all of them, leaves each file with its owner and is never advised to change the owner. Another user receives one sentence, and with
// their own token what that token may do.
func TestEveryCommandAsRootAndAsAnOrdinaryUser(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	h := startCredentialHost(t)
	commands := h.leavesOf()
	for _, command := range commands {
		if !slices.ContainsFunc(everyCommand, func(c asUsers) bool { return c.args == command || strings.HasPrefix(c.args, command+" ") }) {
			t.Errorf("laneway %s is in no row", command)
		}
	}
	secret := h.tokenOf("joe")
	rows := slices.DeleteFunc(slices.Clone(everyCommand), func(c asUsers) bool { // rows for a version with more commands
		return !slices.ContainsFunc(commands, func(name string) bool { return c.args == name || strings.HasPrefix(c.args, name+" ") })
	})
	var wait sync.WaitGroup
	wait.Go(func() { // the other commands do not change what is refused
		for _, c := range rows {
			h.as("an ordinary user", ordinaryUser, nil, c.args, c.plain, map[bool]string{true: noRights}[c.plain != 0])
		}
	})
	for _, c := range rows {
		var row sync.WaitGroup
		row.Go(func() {
			h.as("the holder of a token", ordinaryUser, []string{"LANEWAY_TOKEN=" + secret}, c.args, c.holder, c.holderPrints)
		})
		if c.holderPrints == tooFew || strings.HasPrefix(c.args, "send ") {
			row.Wait() // root changes what the holder reads; the sender of the first message owns the conversation, and may reset it
		}
		h.as("root", nil, nil, c.args, c.root, c.rootPrints)
		row.Wait()
	}
	wait.Wait()
	h.ownerKept()
}

// as runs a command as a user and checks its exit status and a part of its output.
func (h *serverHost) as(who string, user *syscall.Credential, env []string, command string, want int, prints string) {
	args := strings.Fields(strings.NewReplacer("%D", h.dir+"/home", "%S", h.dir+"/state").Replace(command))
	out, code := h.run(user, env, args...)
	if code != want || !strings.Contains(out, prints) {
		h.t.Errorf("laneway %s as %s ends with %d, not %d, or does not print %q:\n%s", command, who, code, want, prints, out)
	}
	if strings.Contains(out, "chown") || strings.Contains(out, "panic") {
		h.t.Errorf("laneway %s as %s:\n%s", command, who, out)
	}
}

// startCredentialHost is startServerHost with a secret that systemd provides, and a log file. The directory is the one in which systemd
// creates those of its units, because a command of root recognises it by its path.
func startCredentialHost(t *testing.T) serverHost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as other users")
	}
	if err := os.MkdirAll("/run/credentials", 0o755); err != nil {
		t.Fatal(err)
	}
	provided, err := os.MkdirTemp("/run/credentials", "laneway-test-*.service") //nolint:usetesting // a directory of systemd's credentials
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(provided) })
	h := layServerHost(t, func(dir string) string {
		return "hooks: {deploy: {secret_file: " + provided + "/deploy}}\nlog: {file: " + dir + "/state/gateway.log}\n"
	})
	// The directory belongs to the unit's user, the file to root. The access list for the unit's user is replaced by a group here.
	err = errors.Join(
		os.WriteFile(provided+"/deploy", []byte(strongToken+"-more\n"), 0o440), os.Chown(provided+"/deploy", 0, int(serviceUser.Gid)), os.Chmod(provided+"/deploy", 0o440),
		os.Chown(provided, int(serviceUser.Uid), int(serviceUser.Gid)), os.Chmod(provided, 0o500),
		os.WriteFile(h.dir+"/home/jobs.yaml", []byte("- {name: coffee, schedule: {kind: every, everyMs: 3600000}, sessionTarget: isolated, payload: {kind: agentTurn, message: coffee}}\n"), 0o644), os.Chmod(h.dir+"/home/jobs.yaml", 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	h.start("CREDENTIALS_DIRECTORY=" + provided)
	return h
}

// tokenOf makes a token as root that may write.
func (h *serverHost) tokenOf(name string) string {
	h.t.Helper()
	out, code := h.run(nil, nil, "token", "create", name, "--scope", "write", "--json")
	_, secret, found := strings.Cut(out, `"token": "`)
	if code != 0 || !found {
		h.t.Fatalf("laneway token create: %s", out)
	}
	secret, _, _ = strings.Cut(secret, `"`)
	return secret
}
