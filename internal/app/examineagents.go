package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/dispatch"
	"laneway/internal/signature"
)

// ExamineAgents checks whether the configured agents can work: that programs exist and endpoints
// answer. It sends nothing to a model. runs are the runners of the running gateway by agent, nil
// when no gateway runs. That gateway may have been started with other agents than are configured
// here.
func ExamineAgents(ctx context.Context, cfg config.Config, runs map[string]string, lookup func(string) (string, bool)) []Finding {
	var found []Finding
	for _, id := range slices.Sorted(maps.Keys(cfg.Agents)) {
		a := cfg.Agents[id]
		if r := runs[id]; r != "" && r != a.Runner {
			found = append(found, examineOther(id, a.Runner, r))
			continue
		}
		f := examineAgent(ctx, a, lookup)
		if _, err := buildRunner(a, surroundings{lookup: lookup}, slog.New(slog.DiscardHandler)); err != nil {
			f = Finding{Failure, err.Error(), "fix agents." + id + " in the configuration"}
		}
		f.Text = id + ": " + f.Text
		found = append(found, f)
	}
	return found
}

// examineOther reports an agent that the running gateway has from another source, such as --agent.
// The configured echo agent is then only a default.
func examineOther(id, here, runs string) Finding {
	text := id + ": the running gateway answers with " + runs + ", this configuration says " + here
	if here == config.RunnerEcho {
		return Finding{Weight: Fine, Text: text}
	}
	return Finding{Warning, text, "restart the gateway, or give doctor the configuration that it runs with"}
}

func examineAgent(ctx context.Context, a config.Agent, lookup func(string) (string, bool)) Finding {
	switch a.Runner {
	case config.RunnerCommand, config.RunnerACP:
		if preset, ok := config.PresetNamed(a.Preset); ok {
			return examinePreset(preset, lookup)
		}
		return examineProgram(a.Command[0], lookup)
	case config.RunnerHTTP:
		return examineWebhook(ctx, a)
	case config.RunnerOpenAI:
		return examineEndpoint(ctx, strings.TrimRight(a.BaseURL, "/")+"/models", map[string]string{"Authorization": "Bearer " + a.APIKey.Reveal()}, a.APIKey.IsSet(), a.Model)
	case config.RunnerAnthropic:
		headers := map[string]string{"X-Api-Key": a.APIKey.Reveal(), "Anthropic-Version": "2023-06-01"}
		return examineEndpoint(ctx, strings.TrimRight(a.BaseURL, "/")+"/v1/models", headers, a.APIKey.IsSet(), "") // the list does not have the aliases of its models
	default:
		return Finding{Warning, "echo, the demo, repeats each message", "use a real agent: laneway agents detect"}
	}
}

// ExamineHomes finds agents whose program or directory is in a home that a systemd unit hides from
// the gateway (ProtectHome). hides reports whether the gateway cannot see a path there.
func ExamineHomes(cfg config.Config, lookup func(string) (string, bool), hides func(path string) bool) []Finding {
	var found []Finding
	for _, id := range slices.Sorted(maps.Keys(cfg.Agents)) {
		a := cfg.Agents[id]
		if a.Runner != config.RunnerCommand && a.Runner != config.RunnerACP {
			continue
		}
		places := dirsOf(a)
		if preset, ok := config.PresetNamed(a.Preset); ok {
			if command, _, err := preset.Find(lookup); err == nil {
				places = append(places, command[0])
			}
		} else if len(a.Command) > 0 {
			places = append(places, a.Command[0])
		}
		hidden := slices.DeleteFunc(places, func(path string) bool { return !inHome(path) || !hides(path) })
		if len(hidden) > 0 {
			found = append(found, Finding{
				Failure, id + ": the unit of the gateway hides " + hidden[0] + " (ProtectHome), so the agent cannot use it",
				"run systemctl edit laneway, write [Service], ProtectHome=no and ReadWritePaths=" + hidden[0] + " on three lines, and restart it; see docs/systemd.md",
			})
		}
	}
	return found
}

// inHome reports whether ProtectHome concerns a path.
func inHome(path string) bool {
	return slices.ContainsFunc([]string{"/home/", "/root/", "/run/user/"}, func(root string) bool { return strings.HasPrefix(path, root) })
}

// UnitHidesHomes reports whether the unit laneway.service below a root directory hides homes: the
// last ProtectHome= counts, of the unit and then of its drop-ins.
func UnitHidesHomes(root string) bool {
	var files []string
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"} { // the first unit replaces the others
		unit := filepath.Join(root, dir, "laneway.service")
		if _, err := os.Stat(unit); err == nil && len(files) == 0 {
			files = append(files, unit)
		}
	}
	for _, dir := range []string{"lib/systemd/system", "usr/lib/systemd/system", "etc/systemd/system"} {
		more, err := filepath.Glob(filepath.Join(root, dir, "laneway.service.d", "*.conf"))
		if err == nil && len(files) > 0 {
			files = append(files, more...)
		}
	}
	hides := false
	for _, file := range files {
		text, err := os.ReadFile(file) // the unit of this host
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if value, is := strings.CutPrefix(strings.TrimSpace(line), "ProtectHome="); is {
				hides = slices.Contains([]string{"yes", "true", "on", "1", "tmpfs"}, strings.ToLower(strings.TrimSpace(value)))
			}
		}
	}
	return hides
}

// HiddenHere reports whether this process runs in a systemd unit and cannot see the home of a path.
func HiddenHere(lookup func(string) (string, bool)) func(path string) bool {
	_, inUnit := lookup("INVOCATION_ID")
	return func(path string) bool {
		rest, home := strings.CutPrefix(path, "/home/")
		person, _, _ := strings.Cut(rest, "/")
		_, err := os.Stat("/home/" + person)
		return inUnit && home && err != nil
	}
}

// examinePreset checks for the program of a preset. [ProbeAgents] checks whether the agent is
// signed in.
func examinePreset(preset config.Preset, lookup func(string) (string, bool)) Finding {
	command, installs, err := preset.Find(lookup)
	switch {
	case err != nil:
		return Finding{Failure, err.Error(), ""}
	case installs:
		return Finding{Weight: Fine, Text: preset.Title + " is run by npx, which installs " + preset.Package + " at the first start"}
	default:
		return Finding{Weight: Fine, Text: preset.Title + " is installed: " + strings.Join(command, " ")}
	}
}

// ProbeAgents starts each configured agent over ACP, creates a session with it, and ends it. It
// sends no prompt. environ is the environment as NAME=value.
func ProbeAgents(ctx context.Context, cfg config.Config, lookup func(string) (string, bool), environ []string) []Finding {
	var found []Finding
	around := surroundings{lookup: lookup, passed: func(a config.Agent) map[string]string { return cfg.Passed(a, environ) }}
	for _, id := range slices.Sorted(maps.Keys(cfg.Agents)) {
		runner, err := buildRunner(cfg.Agents[id], around, slog.New(slog.DiscardHandler))
		if err != nil {
			continue // ExamineAgents reports it
		}
		if probe, ok := runner.(*acp.Runner); ok {
			f := probed(ctx, probe)
			f.Text = id + ": " + f.Text
			found = append(found, f)
		}
		closeAgents([]dispatch.Agent{{Runner: runner}})
	}
	return found
}

func probed(ctx context.Context, probe *acp.Runner) Finding {
	who, err := probe.Probe(ctx)
	if failed, ok := errors.AsType[*agent.Error](err); ok {
		return Finding{Weight: Failure, Text: failed.Message}
	}
	if err != nil {
		return Finding{Weight: Failure, Text: err.Error()}
	}
	text := strings.TrimSpace(who.Name+" "+who.Version) + " answers and made a session"
	if len(who.Abilities) > 0 {
		text += "; it takes " + strings.Join(who.Abilities, ", ")
	}
	return Finding{Weight: Fine, Text: text}
}

func examineProgram(name string, lookup func(string) (string, bool)) Finding {
	candidates := []string{name}
	if !strings.ContainsRune(name, filepath.Separator) {
		candidates = nil
		path, _ := lookup("PATH")
		for _, dir := range filepath.SplitList(path) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, file := range candidates {
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return Finding{Weight: Fine, Text: "the program " + file + " exists"}
		}
	}
	return Finding{Failure, "there is no program " + name, "install it, or give its whole path"}
}

// examineEndpoint requests the list of models, which is free of charge, and checks that it has
// model; "" = any model. It follows no redirect, so the key is sent only to the configured address.
func examineEndpoint(ctx context.Context, address string, headers map[string]string, withKey bool, model string) Finding {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Finding{Failure, "the address of the endpoint cannot be read", "check base_url"}
	}
	if withKey {
		for name, value := range headers {
			req.Header.Set(name, value)
		}
	}
	resp, err := roundTrip(req)
	if err != nil {
		return Finding{Failure, "the endpoint " + req.URL.Host + " does not answer", "check base_url and whether it runs"}
	}
	defer func() { _ = resp.Body.Close() }()
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Finding{Failure, fmt.Sprintf("the endpoint %s refuses the key (%d)", req.URL.Host, status), "check api_key"}
	case status >= http.StatusInternalServerError:
		return Finding{Warning, fmt.Sprintf("the endpoint %s answers with %d", req.URL.Host, status), "look at its own log"}
	default:
		return examineModel(req.URL, resp, model)
	}
}

// roundTrip sends a request over a new connection and follows no redirect.
func roundTrip(req *http.Request) (*http.Response, error) {
	req.Close = true
	return modelTransport().RoundTrip(req)
}

// examineWebhook sends a signed GET without a body to an HTTP agent. It starts no turn, because
// turns are POSTs. An agent that supports the request answers with 2xx when the signature is right,
// and with 401 or 403 when it is wrong. Any other answer shows only that a server exists.
func examineWebhook(ctx context.Context, a config.Agent) Finding {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return Finding{Failure, "the address of the agent cannot be read", "check url"}
	}
	req.Header.Set(signature.Header, signature.Sign(a.Secret.Reveal(), time.Now(), nil))
	resp, err := roundTrip(req)
	if err != nil {
		return Finding{Failure, "the agent at " + req.URL.Host + " does not answer", "check url and whether it runs"}
	}
	_ = resp.Body.Close()
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Finding{Failure, fmt.Sprintf("the agent at %s refuses the signature (%d)", req.URL.Host, status), "check secret, and the clocks of both machines"}
	case status >= http.StatusInternalServerError:
		return Finding{Warning, fmt.Sprintf("the agent at %s answers with %d", req.URL.Host, status), "look at its own log"}
	case status/100 == 2:
		return Finding{Weight: Fine, Text: "the agent at " + req.URL.Host + " answers and knows the secret"}
	default:
		return Finding{Weight: Fine, Text: fmt.Sprintf("a server answers at %s (%d); whether it knows the secret is not known", req.URL.Host, status)}
	}
}

// modelList is the list of models of an endpoint.
type modelList struct {
	Data []struct {
		ID string `json:"id"`
	} `json:"data"`
}

// maxModels limits the list of models in bytes.
const maxModels = 4 << 20

// modelsShown is how many models a finding names.
const modelsShown = 8

// examineModel checks for a model in the list of an endpoint. An endpoint without a list is not
// evidence against the model.
func examineModel(address *url.URL, resp *http.Response, model string) Finding {
	fine := Finding{Weight: Fine, Text: "the endpoint " + address.Host + " answers"}
	var list modelList
	if model == "" || model == config.ModelAuto || resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list) != nil || list.Data == nil {
		return fine
	}
	var has []string
	for _, m := range list.Data {
		if m.ID == model || m.ID == model+":latest" {
			fine.Text += " and has the model " + model
			return fine
		}
		has = append(has, m.ID)
	}
	text, cure := "the endpoint "+address.Host+" has no model "+model, "name another one as the agent's model"
	if len(has) > 0 {
		text += "; it has " + chat.Printable(strings.Join(has[:min(len(has), modelsShown)], ", "))
	}
	if address.Port() == ollamaPort {
		cure = "run: ollama pull " + model
	}
	return Finding{Warning, text, cure}
}

// ollamaPort is the default port of Ollama.
const ollamaPort = "11434"

// probeAgents checks the endpoints of the agents once and logs what would make a turn fail. It
// refuses nothing, because an endpoint may start later.
func (p *Process) probeAgents(ctx context.Context) {
	for _, id := range slices.Sorted(maps.Keys(p.cfg.Agents)) {
		a := p.cfg.Agents[id]
		if preset, ok := config.PresetNamed(a.Preset); ok {
			p.installAgent(ctx, id, preset)
			continue
		}
		if !slices.Contains([]string{config.RunnerHTTP, config.RunnerOpenAI, config.RunnerAnthropic}, a.Runner) {
			continue
		}
		bound, cancel := context.WithTimeout(ctx, probeTime)
		found := examineAgent(bound, a, p.opts.LookupEnv)
		cancel()
		if found.Weight != Fine && ctx.Err() == nil {
			p.log.WarnContext(ctx, "turns of an agent may fail", "agent", id, "found", found.Text, "do", found.Cure)
		}
	}
}

// installAgent starts the agent of a preset once, so that npx installs the package before the first
// turn.
func (p *Process) installAgent(ctx context.Context, id string, preset config.Preset) {
	if _, installs, err := preset.Find(p.opts.LookupEnv); err != nil || !installs {
		return
	}
	runner, err := buildRunner(p.cfg.Agents[id], p.surroundings(), p.log.With("agent", id))
	if err != nil {
		return // the start has failed with the same error
	}
	defer closeAgents([]dispatch.Agent{{Runner: runner}})
	probe, ok := runner.(*acp.Runner)
	if !ok {
		return
	}
	p.log.InfoContext(ctx, "npx starts the agent, which may take a minute the first time", "agent", id, "package", preset.Package)
	begin := time.Now()
	found := probed(ctx, probe)
	if ctx.Err() != nil {
		return
	}
	if found.Weight != Fine {
		p.log.WarnContext(ctx, "turns of an agent may fail", "agent", id, "found", found.Text)
		return
	}
	p.log.InfoContext(ctx, "the agent is ready", "agent", id, "found", found.Text, "took", time.Since(begin).Round(time.Second).String())
}

// probeTime limits the probe of one endpoint.
const probeTime = 10 * time.Second
