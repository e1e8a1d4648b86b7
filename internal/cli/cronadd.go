package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"laneway/internal/client"
	"laneway/internal/cron/schedule"
	"laneway/internal/wire"
)

// scheduleFlags set when a job fires; exactly one of the first three.
type scheduleFlags struct {
	At         string         `help:"Once: a moment such as 2027-03-02T08:00, 'in 20m', 15:00 or 'tomorrow 9:00' (in --tz, else UTC)." placeholder:"TIME" xor:"when"`
	Every      *time.Duration `help:"Repeat at a fixed interval, such as 30m." placeholder:"DURATION" xor:"when"`
	Cron       string         `help:"A cron expression of five or six fields." placeholder:"EXPR" xor:"when"`
	TZ         string         `help:"Time zone of the schedule; default the gateway's." placeholder:"ZONE" name:"tz"`
	DSTGap     string         `help:"Local times skipped by a clock change: run_after or skip." placeholder:"RULE" name:"dst-gap" enum:",run_after,skip" default:""`
	DSTOverlap string         `help:"Local times repeated by a clock change: first, second or both." placeholder:"RULE" name:"dst-overlap" enum:",first,second,both" default:""`
	From       string         `help:"Don't run before this time, written as for --at; none = no limit." placeholder:"TIME"`
	Until      string         `help:"Don't run after this time, written as for --at; none = no limit." placeholder:"TIME"`
	MaxRuns    *int           `help:"End the job after this many scheduled runs; 0 = no limit." placeholder:"N" name:"max-runs"`
}

// schedule returns nil when no flag gives a schedule.
func (f scheduleFlags) schedule() (map[string]any, error) {
	s := map[string]any{}
	switch {
	case f.At != "":
		s["kind"], s["at"] = "at", f.At
	case f.Every != nil:
		s["kind"], s["everyMs"] = "every", f.Every.Milliseconds()
	case f.Cron != "":
		s["kind"], s["expr"] = "cron", f.Cron
	case f.TZ != "":
		return nil, usageError("--tz goes with --at, --every or --cron")
	default:
		return nil, nil // no schedule was given
	}
	if f.TZ != "" {
		s["tz"] = f.TZ
	}
	return s, nil
}

// unbounded is the value of a flag that removes a limit.
const unbounded = "none"

// bounds sets the first and the last time and the number of fires in p.
func (f scheduleFlags) bounds(p map[string]any) {
	for _, b := range []struct{ flag, member, text string }{{"--from", "startsAtMs", f.From}, {"--until", "endsAtMs", f.Until}} {
		switch b.text {
		case "":
		case unbounded:
			p[b.member] = nil
		default:
			p[b.member] = b.text
		}
	}
	if f.MaxRuns != nil {
		p["maxRuns"] = *f.MaxRuns
	}
}

func (f scheduleFlags) dst() map[string]any {
	d := map[string]any{}
	if f.DSTGap != "" {
		d["gap"] = f.DSTGap
	}
	if f.DSTOverlap != "" {
		d["overlap"] = f.DSTOverlap
	}
	return d
}

// jobFlags are the members of a job other than its schedule. A flag that is not given changes
// nothing.
type jobFlags struct {
	scheduleFlags

	Name    string `help:"Name of the job." placeholder:"NAME"`
	Message string `help:"The message to the agent." placeholder:"TEXT"`
	Agent   string `help:"The agent; default the gateway's." placeholder:"ID" complete:"agents"`
	Session string `help:"isolated, main or session:KEY." placeholder:"TARGET" complete:"isolated,main,session:"`
	Deliver string `help:"Where to send the answer: CHANNEL:CHAT[:THREAD], web:SESSION, or last." placeholder:"TARGET" xor:"deliver"`
	Urgent  *bool  `help:"Send the answer during quiet hours, too." negatable:""`
	Webhook string `help:"URL to call when a run has ended." placeholder:"URL" xor:"deliver"`
	Overlap string `help:"If the previous run is still active: skip, concurrent, buffer_one or cancel_previous." placeholder:"POLICY" enum:",skip,concurrent,buffer_one,cancel_previous" default:""`
	Missed  string `help:"If the gateway was down: skip, fire_once or fire_all." placeholder:"POLICY" enum:",skip,fire_once,fire_all" default:""`

	MissedWindow *time.Duration `help:"Run missed times up to this age; 0 = none." placeholder:"DURATION" name:"missed-window"`
	MissedMost   *int           `help:"Run at most this many missed times." placeholder:"N" name:"missed-most"`

	Jitter  *time.Duration `help:"Delay each run by a random time up to this." placeholder:"DURATION"`
	Timeout time.Duration  `help:"Time limit of an attempt; default 10m." placeholder:"DURATION"`
	Retries *int           `help:"How often to retry after a failure; default 3." placeholder:"N"`

	AlertAfter *int   `help:"Alert after this many failures in a row; 0 = never; default the gateway's." placeholder:"N" name:"alert-after"`
	AlertTo    string `help:"Where to send alerts: CHANNEL:CHAT; default where the answer goes." placeholder:"TARGET" name:"alert-to"`
}

type cronAdd struct {
	clientFlags
	jobFlags

	Key     string `help:"A stable key, so that a repeated call updates the same job." placeholder:"KEY"`
	Paused  string `help:"Create the job paused, with this reason." placeholder:"NOTE"`
	Replace bool   `help:"Update the job of this name, if it exists." xor:"name"`
	New     bool   `help:"Create another job of this name." xor:"name"`
	JSON    bool   `help:"Print JSON."`
}

// Run makes the job.
func (c *cronAdd) Run(ctx context.Context, env *environment) error {
	params, err := c.params()
	if err != nil {
		return err
	}
	conn := c.gateway(env)
	var raw json.RawMessage
	if err := conn.Call(ctx, "cron.add", params, &raw); err != nil {
		return c.explain(ctx, conn, inFlags(err))
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var reply struct {
		wire.Job // of an answer without a key of the client

		Declared *wire.Job `json:"job"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	job := reply.Job
	if reply.Declared != nil {
		job = *reply.Declared
	}
	when := ""
	if job.Schedule.Kind == "cron" { // the other kinds are as they were typed
		when = scheduleOf(job) + ", "
	}
	return env.print("%s %s, %s\n%s", cell(job.ID, 36), cell(job.Name, 60), when+nextOf(job), warningsOf(job))
}

// warningsOf are lines about what may surprise the maker of a job.
func warningsOf(j wire.Job) string {
	var out strings.Builder
	for _, w := range j.Warnings {
		out.WriteString("warning: " + oneLine(w) + "\n")
	}
	return out.String()
}

// nextOf describes the next fire of a job.
func nextOf(j wire.Job) string {
	if j.NextRunAtMs == 0 {
		return "it does not fire"
	}
	return "next " + localTime(j.NextRunAtMs, j.Schedule.TZ)
}

// localTime is an instant in the zone of a job, as RFC 3339.
func localTime(ms int64, tz string) string {
	zone, err := schedule.LoadZone(tz)
	if err != nil { // a newer gateway may know more zones
		zone = time.UTC
	}
	return time.UnixMilli(ms).In(zone).Format(time.RFC3339)
}

// explain shows the jobs that already have the name of a new one, and what to do.
func (c *cronAdd) explain(ctx context.Context, conn gatewayConn, err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.DetailCode != "CRON_NAME_EXISTS" {
		return err
	}
	ids, _ := refused.Details["jobIds"].([]any) // then no jobs are shown
	var there []string
	for _, id := range ids {
		var j wire.Job
		if err := conn.Call(ctx, "cron.get", map[string]any{"id": id, "extended": true}, &j); err != nil {
			continue // removed meanwhile
		}
		there = append(there, fmt.Sprintf("%s %s, %s, %s", cell(j.ID, 36), cell(scheduleOf(j), 60), stateOf(j), nextOf(j)))
	}
	if len(ids) > 1 {
		return fmt.Errorf("%d jobs have the name %s: %s; nothing was changed; change one by its id (laneway cron edit ID), or make another with --new",
			len(ids), oneLine(c.Name), strings.Join(there, "; "))
	}
	return fmt.Errorf("a job has the name %s: %s; nothing was changed; --replace changes it, --new creates another one", oneLine(c.Name), strings.Join(there, "; "))
}

func (c *cronAdd) params() (map[string]any, error) {
	if c.Name == "" || c.Message == "" {
		return nil, usageError("a job needs --name and --message; see laneway cron add --help")
	}
	p, err := c.members()
	if err != nil {
		return nil, err
	}
	if p["schedule"] == nil {
		return nil, usageError("say when: --at, --every or --cron")
	}
	if p["sessionTarget"] == nil {
		p["sessionTarget"] = "isolated"
	}
	p["extended"], p["ifNameExists"] = true, "refuse"
	key := c.Key
	switch {
	case c.Replace:
		p["ifNameExists"] = "replace"
	case c.New:
		p["ifNameExists"] = "new"
		if key == "" { // the derived key belongs to a job with the same name and schedule
			key = c.Name + "::" + newKey()
		}
	}
	if key != "" {
		p["key"] = key
	}
	if c.Paused != "" {
		p["paused"] = map[string]any{"note": c.Paused}
	}
	return p, nil
}

// members returns the members of a job that the flags set.
func (c *jobFlags) members() (map[string]any, error) {
	p := map[string]any{}
	s, err := c.schedule()
	if err != nil {
		return nil, err
	}
	if s != nil {
		p["schedule"] = s
	}
	if c.Message != "" {
		p["payload"] = map[string]any{"kind": "agentTurn", "message": c.Message}
	}
	for name, value := range map[string]string{"name": c.Name, "agentId": c.Agent, "sessionTarget": c.Session, "overlap": c.Overlap} {
		if value != "" {
			p[name] = value
		}
	}
	if d := c.dst(); len(d) > 0 {
		p["dst"] = d
	}
	c.bounds(p)
	if m := c.missed(); len(m) > 0 {
		p["missed"] = m
	}
	if c.Jitter != nil {
		p["jitterMs"] = c.Jitter.Milliseconds()
	}
	if c.Timeout > 0 {
		p["timeoutSeconds"] = int64(c.Timeout / time.Second)
	}
	if c.Retries != nil {
		p["retry"] = map[string]any{"maxRetries": *c.Retries}
	}
	d := c.delivery()
	if c.Urgent != nil {
		if d == nil {
			d = map[string]any{}
		}
		d["urgent"] = *c.Urgent
	}
	if d != nil {
		p["delivery"] = d
	}
	if a := c.alert(); a != nil {
		p["failureAlert"] = a
	}
	return p, nil
}

// missed returns the rules for missed fires that the flags set.
func (c *jobFlags) missed() map[string]any {
	m := map[string]any{}
	if c.Missed != "" {
		m["policy"] = c.Missed
	}
	if c.MissedWindow != nil {
		m["windowSeconds"] = int64(*c.MissedWindow / time.Second)
	}
	if c.MissedMost != nil {
		m["maxCatchup"] = *c.MissedMost
	}
	return m
}

// alert returns when and where failures are reported; nil when no flag changes it, false for never.
func (c *jobFlags) alert() any {
	if c.AlertAfter != nil && *c.AlertAfter == 0 {
		return false
	}
	a := map[string]any{}
	if c.AlertTo != "" {
		a = announcement(c.AlertTo)
		delete(a, "mode") // an alert with an address is announced
	}
	if c.AlertAfter != nil {
		a["after"] = *c.AlertAfter
	}
	if len(a) == 0 {
		return nil
	}
	return a
}

func (c *jobFlags) delivery() map[string]any {
	if c.Webhook != "" {
		return map[string]any{"mode": "webhook", "to": c.Webhook}
	}
	if c.Deliver == "" {
		return nil
	}
	return announcement(c.Deliver)
}

// announcement returns the delivery to CHANNEL:CHAT[:THREAD].
func announcement(target string) map[string]any {
	d := map[string]any{"mode": "announce"}
	channel, rest, _ := strings.Cut(target, ":")
	to, thread := rest, ""
	if channel != "web" { // for the web, the chat is a session key, which contains colons
		to, thread, _ = strings.Cut(rest, ":")
	}
	for name, value := range map[string]string{"channel": channel, "to": to, "threadId": thread} {
		if value != "" {
			d[name] = value
		}
	}
	return d
}

// flagWord describes the flag of a member of a job. On the command line, numbers with a unit are
// durations, and instants are times.
type flagWord struct {
	flag    string
	unit    time.Duration
	instant bool
}

// flagOf returns the flag of a member by its path.
func flagOf(path string) (flagWord, bool) {
	switch path {
	case "schedule.everyMs":
		return flagWord{flag: "--every", unit: time.Millisecond}, true
	case "jitterMs", "schedule.staggerMs":
		return flagWord{flag: "--jitter", unit: time.Millisecond}, true
	case "timeoutSeconds", "payload.timeoutSeconds":
		return flagWord{flag: "--timeout", unit: time.Second}, true
	case "missed.windowSeconds":
		return flagWord{flag: "--missed-window", unit: time.Second}, true
	case "startsAtMs":
		return flagWord{flag: "--from", instant: true}, true
	case "endsAtMs":
		return flagWord{flag: "--until", instant: true}, true
	}
	for _, w := range []struct{ path, flag string }{
		{"fromMs", "--from"},
		{"toMs", "--to"},
		{"untilMs", "--for"},
		{"schedule.at", "--at"},
		{"schedule.atMs", "--at"},
		{"schedule.expr", "--cron"},
		{"schedule.tz", "--tz"},
		{"dst.gap", "--dst-gap"},
		{"dst.overlap", "--dst-overlap"},
		{"name", "--name"},
		{"payload", "--message"},
		{"payload.message", "--message"},
		{"delivery.threadId", "--deliver"},
		{"agentId", "--agent"},
		{"sessionTarget", "--session"},
		{"delivery.to", "--webhook"},
		{"delivery.channel", "--deliver"},
		{"overlap", "--overlap"},
		{"missed.policy", "--missed"},
		{"missed.maxCatchup", "--missed-most"},
		{"retry.maxRetries", "--retries"},
		{"maxRuns", "--max-runs"},
		{"failureAlert.after", "--alert-after"},
		{"failureAlert.to", "--alert-to"},
		{"failureAlert.channel", "--alert-to"},
		{"paused.note", "--paused"},
		{"key", "--key"},
	} {
		if w.path == path {
			return flagWord{flag: w.flag}, true
		}
	}
	return flagWord{}, false
}

// flagError is a refusal with the names of flags. It wraps the refusal of the gateway.
type flagError struct {
	sentence string
	cause    error
}

func (e *flagError) Error() string { return e.sentence }

func (e *flagError) Unwrap() error { return e.cause }

// inFlags rewrites a refusal of a job's member with the name of its flag, which the gateway does
// not know. The sentence is kept, except for numbers that a person would write as durations, and
// members that are flags.
func inFlags(err error) error {
	text := strings.TrimPrefix(err.Error(), "at /")
	field, rest := "", text
	if refused, ok := errors.AsType[*client.Error](err); ok {
		field, _ = refused.Details["field"].(string) // then the sentence begins with it
	}
	if end := strings.IndexAny(text, ": "); end >= 0 {
		if path := strings.ReplaceAll(text[:end], "/", "."); field == "" || path == field {
			field, rest = path, text[end:]
		}
	}
	w, known := flagOf(field)
	if !known {
		return err
	}
	if past, is := strings.CutPrefix(rest, " is in the past: "); is {
		return &flagError{sentence: w.flag + " is in the past: " + past, cause: err}
	}
	rest = strings.TrimPrefix(strings.TrimLeft(rest, ": "), "is ")
	rest = strings.ReplaceAll(rest, "a schedule of kind every with everyMs", "--every")
	if w.unit > 0 {
		rest = numbers.ReplaceAllStringFunc(rest, w.duration)
	}
	if field == "delivery.channel" {
		rest += "; laneway pair list shows the people"
	}
	return &flagError{sentence: w.flag + ": " + rest, cause: err}
}

// numbers matches a number, or two that form a range.
var numbers = regexp.MustCompile(`\d+(-\d+)?`)

// duration formats such a number as a duration.
func (w flagWord) duration(text string) string {
	low, high, isRange := strings.Cut(text, "-")
	if isRange {
		return w.duration(low) + " to " + w.duration(high)
	}
	n, err := strconv.ParseInt(low, 10, 64)
	if err != nil || n > int64((1<<63-1)/w.unit) {
		return text
	}
	switch d := time.Duration(n) * w.unit; {
	case d > 0 && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dh", d/time.Hour) + inDays(d)
	default:
		return exact(d)
	}
}

// exact formats a duration like package time, without trailing zero units.
func exact(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// inDays explains a duration that has no short form on the command line.
func inDays(d time.Duration) string {
	if d < 48*time.Hour {
		return ""
	}
	return fmt.Sprintf(" (%d days)", d/(24*time.Hour))
}
