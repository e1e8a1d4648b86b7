package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"laneway/internal/cron"
)

// portable returns the members of a job that import accepts, in the order in which export writes
// them.
func portable() []string {
	return []string{
		"name", "displayName", "description", "key", "agentId", "enabled", "paused", "schedule", "dst", "sessionTarget", "payload", "delivery", "deleteAfterRun", "wakeMode",
		"failureAlert", "overlap", "missed", "jitterMs", "retry", "timeoutSeconds", "lane", "pauseAfterFailures", "atMostOnce", "startsAtMs", "endsAtMs", "maxRuns",
	}
}

type cronExport struct {
	clientFlags

	JSON bool `help:"One job per line, in JSON."`
}

// Run prints the jobs.
func (c *cronExport) Run(ctx context.Context, env *environment) error {
	jobs, err := c.jobs(ctx, env)
	if err != nil {
		return err
	}
	if c.JSON {
		for _, job := range jobs {
			if err := json.NewEncoder(env.stdout).Encode(job); err != nil {
				return err
			}
		}
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, job := range jobs {
		n, err := yamlJob(job)
		if err != nil {
			return err
		}
		list.Content = append(list.Content, n)
	}
	enc := yaml.NewEncoder(env.stdout)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(list), enc.Close())
}

// jobs returns the portable members of all jobs.
func (c *cronExport) jobs(ctx context.Context, env *environment) (all []map[string]json.RawMessage, err error) {
	conn := c.gateway(env)
	got, err := listing{method: "cron.list", member: "jobs", params: map[string]any{"includeDisabled": true, "extended": true}}.read(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := got.into(&all); err != nil {
		return nil, fmt.Errorf("the list of jobs cannot be read: %w", err)
	}
	for _, job := range all {
		if string(job["keyDerived"]) == "true" { // it is derived from the name and the schedule, as in the other gateway
			delete(job, "key")
		}
		maps.DeleteFunc(job, func(name string, _ json.RawMessage) bool { return !slices.Contains(portable(), name) })
	}
	return all, nil
}

// yamlJob returns a job with its members in the order of [portable].
func yamlJob(job map[string]json.RawMessage) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range portable() {
		raw, given := job[name]
		if !given {
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber() // milliseconds since 1970 unchanged, not as 1.8e+12
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("the list of jobs cannot be read: %w", err)
		}
		n := &yaml.Node{}
		if err := n.Encode(yamlNumbers(value)); err != nil {
			return nil, err
		}
		out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, n)
	}
	return out, nil
}

// yamlNumbers converts JSON numbers, which YAML would quote, to integers if possible.
func yamlNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	case []any:
		for i := range v {
			v[i] = yamlNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = yamlNumbers(v[name])
		}
	}
	return value
}

type cronImport struct {
	clientFlags

	File string `arg:"" help:"File of laneway cron export: YAML, or one job per line in JSON." type:"existingfile"`
}

// fileJob is a job of a file, with its position.
type fileJob struct {
	members cron.Members
	line    int
}

// Run makes or changes the jobs; importing a file twice changes nothing. A file with a fault is
// refused as a whole, before anything is changed. Only checks that depend on the gateway (agents,
// lanes, hosts of webhooks, quotas) can still fail during an import.
func (c *cronImport) Run(ctx context.Context, env *environment) error {
	text, err := readJobsFile(c.File)
	if err != nil {
		return err
	}
	jobs, err := readJobs(text)
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", oneLine(c.File), err)
	}
	for _, j := range jobs {
		if err := j.check(env); err != nil {
			return fmt.Errorf("line %d of %s: %w; nothing was changed", j.line, oneLine(c.File), err)
		}
	}
	conn := c.gateway(env)
	for i, j := range jobs {
		var reply json.RawMessage
		if err := conn.Call(ctx, "cron.add", j.members, &reply); err != nil {
			return fmt.Errorf("line %d of %s, after %s: %w", j.line, oneLine(c.File), count(i, "job"), err)
		}
	}
	return env.printLine(count(len(jobs), "job"))
}

// maxJobsFile limits a file of jobs, in bytes: some 50,000 typical jobs. Parsing YAML needs many
// times as much memory.
const maxJobsFile = 32 << 20

// readJobsFile reads a regular file: opening a pipe blocks until a writer opens it, and a device
// has no end.
func readJobsFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading jobs: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; write the jobs into a file and name it", oneLine(path))
	}
	f, err := os.Open(path) // the file that the caller has named
	if err != nil {
		return nil, fmt.Errorf("reading jobs: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxJobsFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading jobs: %w", err)
	case len(text) > maxJobsFile:
		return nil, fmt.Errorf("%s has more than %d MiB; split it, one job per line as laneway cron export --json writes them", oneLine(path), maxJobsFile>>20)
	}
	return text, nil
}

// check refuses what every gateway would refuse, whatever its configuration.
func (j fileJob) check(env *environment) error {
	m := cron.Members{}
	for name, raw := range j.members {
		if !slices.Contains(portable(), name) {
			return fmt.Errorf("a job has no member %s", cell(name, 64))
		}
		if name != "lane" { // only the gateway knows its lanes
			m[name] = raw
		}
	}
	for _, name := range []string{"name", "schedule", "sessionTarget", "payload"} {
		if _, given := m[name]; !given {
			return fmt.Errorf("%s is missing", name)
		}
	}
	known := func(string) bool { return true }
	_, err := cron.Border{Now: env.now(), Agent: known, Channel: known, Payload: func(cron.PayloadKind) bool { return true }}.Apply(cron.Job{}, m)
	return err
}

// readJobs parses the output of export: a list in YAML, or, if the first value is a JSON object,
// one job per line.
func readJobs(text []byte) ([]fileJob, error) {
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return jsonJobs(text)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var list []yaml.Node
	switch err := dec.Decode(&list); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it has no jobs")
	case err != nil:
		return nil, fmt.Errorf("it is not a list of jobs: %s", faultOf(err))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows after the list of jobs")
	}
	jobs := make([]fileJob, 0, len(list))
	for i := range list {
		n := &list[i]
		var whole map[string]any // finds duplicate members and aliases that would expand too far
		if err := n.Decode(&whole); err != nil {
			return nil, fmt.Errorf("the job of line %d cannot be read: %s", n.Line, faultOf(err))
		}
		value, err := plainValue(n)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("the job of line %d cannot be read: %w", n.Line, err)
		}
		job := fileJob{line: n.Line}
		if err := json.Unmarshal(raw, &job.members); err != nil || job.members == nil {
			return nil, fmt.Errorf("line %d is not a job", n.Line)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// faultOf returns the error of the library in one line.
func faultOf(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func jsonJobs(text []byte) (jobs []fileJob, err error) {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		job := fileJob{line: n}
		if err := json.Unmarshal(line, &job.members); err != nil {
			return nil, fmt.Errorf("line %d is not a job: %w", n, err)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// plainValue returns a node as a JSON value. Timestamps remain strings.
func plainValue(n *yaml.Node) (value any, err error) {
	switch n.Kind {
	case yaml.AliasNode:
		return plainValue(n.Alias)
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if out[n.Content[i].Value], err = plainValue(n.Content[i+1]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i := range n.Content {
			if out[i], err = plainValue(n.Content[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case yaml.ScalarNode, yaml.DocumentNode: // a document is never inside another
	}
	if n.ShortTag() == "!!timestamp" {
		return n.Value, nil
	}
	if err := n.Decode(&value); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	return value, nil
}
