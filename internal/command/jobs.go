package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/words"
)

// JobActions are the operations of the commands on jobs. Every method sees and changes only the
// person's own jobs. In a group it is further limited to jobs that reply there, because other
// people must not read a person's private jobs.
type JobActions interface {
	// Clock returns the store's time, which decides what is due, and the zone for times without a
	// zone: the person's own, or the gateway's.
	Clock(ctx context.Context, c Call) (now time.Time, zone string, err error)
	// AddJob makes a job that replies where the command was given, or changes the job whose key n
	// has. The same job is not added twice.
	AddJob(ctx context.Context, c Call, n NewJob) (cron.Put, error)
	// Jobs lists jobs in the order of their creation.
	Jobs(ctx context.Context, c Call) ([]cron.Job, error)
	RemoveJob(ctx context.Context, c Call, id string) error
	PauseJob(ctx context.Context, c Call, id, note string) error
	ResumeJob(ctx context.Context, c Call, id string) (cron.Job, error)
	// RunJob starts a run now. reason says why no run was started.
	RunJob(ctx context.Context, c Call, id string) (reason string, err error)
	// RemovedJob is the id of a job that only the ledger knows, by its name or its id; "" = the
	// ledger has no such job. It finds none where other people read along: the ledger does not have
	// where the job answered.
	RemovedJob(ctx context.Context, c Call, name string) (id string, err error)
	// ExplainJob explains a slot of a job, also of a removed one; when is a moment in words.
	ExplainJob(ctx context.Context, c Call, id, when string) (cron.Explanation, error)
}

// NewJob is a job that a person requested.
type NewJob struct {
	Schedule schedule.Spec
	Text     string
	// Reminder: the text is sent unchanged. Otherwise it is a message to the agent, whose answer is
	// sent.
	Reminder bool
	// Key is the key of the job to change; "" = a new job.
	Key string
}

func jobCommands() []Command {
	return []Command{
		{
			Name: "remind", Args: "WHEN TEXT", Common: true, Category: "jobs", Method: "cron.add",
			Description: "Remind you later: in 20m, 15:00, tomorrow 9:00, every 30m.", Run: textOnly(runRemind),
		},
		{
			Name: "cron", Args: "[add WHEN TEXT | list | show N | why N WHEN | pause N | resume N | run N | rm N]", Category: "jobs", Method: "cron.list",
			Verbs: map[string]string{
				"add": "cron.add", "replace": "cron.add", "new": "cron.add", "show": "cron.get", "why": "cron.explain", "pause": "cron.pause", "resume": "cron.resume", "run": "cron.run", "rm": "cron.remove", "remove": "cron.remove",
			},
			Description: "Schedule work for the agent, and manage your jobs.", Run: runCron,
		},
		{
			Name: "jobs", Common: true, Category: "jobs", Method: "cron.list",
			Description: "List your reminders and jobs.", Run: runJobs,
		},
	}
}

const (
	remindUsage = "write /remind WHEN TEXT, such as /remind in 20m tea is ready"
	cronUsage   = `write /cron add WHEN TEXT, such as /cron add "0 9 * * 1-5" morning briefing`
	// maxJobName is the length to which the text of a job is cut for its name.
	maxJobName = 80
)

func runRemind(ctx context.Context, a Actions, c Call) (string, error) {
	n, zone, err := readJob(ctx, a, c, c.Args, remindUsage)
	if err != nil {
		return "", err
	}
	n.Reminder = true
	return addJob(ctx, a, c, n, zone)
}

func runCron(ctx context.Context, a Actions, c Call) (Answer, error) {
	verb, rest, _ := cutWord(c.Args)
	switch strings.ToLower(verb) {
	case "", "list":
		return runJobs(ctx, a, c)
	case "add", "replace", "new":
		text, err := addCron(ctx, a, c, strings.ToLower(verb), rest)
		return Answer{Text: text}, err
	case "why":
		return whyJob(ctx, a, c, rest)
	case "show", "pause", "resume", "run", "rm", "remove":
		return onJob(ctx, a, c, strings.ToLower(verb), rest)
	default:
		return Answer{}, chat.Errorf(chat.CodeInvalid, "I don't know /cron %s; use add, replace, new, list, show, why, pause, resume, run or rm", chat.Cut(verb, 20))
	}
}

// readJob parses the arguments of /remind or /cron add: a time and a message.
func readJob(ctx context.Context, a Actions, c Call, text, usage string) (n NewJob, zone string, err error) {
	if text == "" {
		return n, "", chat.Errorf(chat.CodeInvalid, "%s", usage)
	}
	now, zone, err := a.Clock(ctx, c)
	if err != nil {
		return n, "", err
	}
	if n.Schedule, n.Text, err = schedule.ParseWhen(text, now, zone); err != nil {
		return n, "", inChatWords(chat.Errorf(chat.CodeInvalid, "%s", err))
	}
	if n.Text == "" {
		return n, "", chat.Errorf(chat.CodeInvalid, "the text is missing after the time; %s", usage)
	}
	return n, zone, nil
}

func addJob(ctx context.Context, a Actions, c Call, n NewJob, zone string) (string, error) {
	put, err := a.AddJob(ctx, c, n)
	if err != nil {
		return "", inChatWords(err)
	}
	return added(put, n.Text, zone, n.Reminder), nil
}

// addCron implements /cron add, replace and new. The first line of the text is the name of a job,
// and the name identifies it. If a job with this name exists, add refuses to make a second one that
// would also fire, replace changes it, and new makes a second one.
func addCron(ctx context.Context, a Actions, c Call, verb, text string) (string, error) {
	n, zone, err := readJob(ctx, a, c, text, cronUsage)
	if err != nil {
		return "", err
	}
	if verb == "new" {
		return addJob(ctx, a, c, n, zone)
	}
	jobs, err := a.Jobs(ctx, c)
	if err != nil {
		return "", err
	}
	name, place := JobName(n.Text), -1
	for i, j := range jobs {
		switch {
		case !strings.EqualFold(j.Name, name) || ended(j):
		case j.Schedule.Signature() == n.Schedule.Signature() && j.Payload.Text == n.Text: // the same request again
			n.Key = j.Key
			return addJob(ctx, a, c, n, zone)
		case place >= 0 && verb == "replace":
			return "", chat.Errorf(chat.CodeInvalid, "several jobs are named %s; first remove one with /cron rm and its number", name)
		default:
			place = i
		}
	}
	switch {
	case verb == "replace" && place < 0:
		return "", chat.Errorf(chat.CodeInvalid, "there is no job named %s to replace; /cron add creates one", name)
	case verb == "replace":
		n.Key = jobs[place].Key
	case place >= 0 && c.Again: // the job of a relative time has another time now
		return "", errInterrupted()
	case place >= 0:
		return "", chat.Errorf(chat.CodeInvalid, "a job with this name already exists: %s. Write /cron replace WHEN TEXT to change it, or /cron new WHEN TEXT for a second one",
			strings.TrimSuffix(jobLine(place, jobs[place], zone), "."))
	}
	return addJob(ctx, a, c, n, zone)
}

// ended reports whether a job will do nothing more unless a person resumes it.
func ended(j cron.Job) bool {
	return j.Pause == nil && !j.AutoDisabled && (!j.Enabled || j.State.NextRunAt.IsZero())
}

// inChatWords replaces the protocol's member names in an error.
func inChatWords(err error) error {
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return err
	}
	text := strings.ReplaceAll(e.Message, "a schedule of kind every with everyMs", "every 30m")
	if field, sentence, found := strings.Cut(text, ": "); found {
		switch field {
		case "when", "schedule.at", "schedule.every", "schedule.everyMs", "schedule.expr":
			text = sentence
		case "schedule.at is in the past":
			text = "this is in the past: " + sentence
		}
	}
	return chat.Errorf(e.Code, "%s", text)
}

// Surprised is an answer about a job that was made or changed, with what may surprise its maker on
// further lines.
func Surprised(text string, j cron.Job) string {
	return strings.Join(append([]string{text}, j.Surprises()...), "\nNote: ")
}

func added(put cron.Put, text, zone string, reminder bool) string {
	return Surprised(planned(put, text, zone, reminder), put.Job)
}

func planned(put cron.Put, text, zone string, reminder bool) string {
	next, words := nextOf(put.Job, zone), put.Job.Schedule.Words(zone)
	switch {
	case !put.Created && !put.Updated:
		return "That is already planned: " + next + "."
	case reminder && put.Job.Schedule.Kind == schedule.KindAt:
		return "I will remind you " + words + ": " + text
	case reminder:
		return "I will remind you " + words + ", " + next + ": " + text
	default:
		return "Planned: " + put.Job.Name + " (" + words + "), " + next + "."
	}
}

// JobName derives a name from a message: its first line, printable, of limited length.
func JobName(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(strings.Map(func(r rune) rune {
		if chat.Unprintable(r) {
			return ' '
		}
		return r
	}, line))
	line = cutRunes(line, maxJobName)
	return cmp.Or(line, "job")
}

// WireSchedule returns a schedule with the member names of the protocol.
func WireSchedule(s schedule.Spec) map[string]any {
	switch s.Kind {
	case schedule.KindAt:
		return map[string]any{"kind": s.Kind, "at": s.At.UTC().Format(time.RFC3339Nano)} // in the format in which an error shows it
	case schedule.KindEvery:
		return map[string]any{"kind": s.Kind, "everyMs": s.EveryMs, "anchorMs": s.AnchorMs}
	case schedule.KindCron:
		return map[string]any{"kind": s.Kind, "expr": s.Expr, "tz": s.TZ}
	}
	return map[string]any{"kind": s.Kind}
}

// runJobs lists the jobs, with a button for the details of each.
func runJobs(ctx context.Context, a Actions, c Call) (Answer, error) {
	jobs, zone, err := jobsHere(ctx, a, c)
	if err != nil || len(jobs) == 0 {
		return Answer{Text: noJobs()}, err
	}
	lines := make([]string, 0, len(jobs))
	for i, j := range jobs {
		lines = append(lines, jobLine(i, j, zone))
	}
	choice := whichJob("show", jobs, func(cron.Job) bool { return true })
	choice.Typed = "Write /cron show N, pause N, resume N, run N or rm N with the number of a job."
	return Answer{Text: strings.Join(lines, "\n"), Choice: choice}, nil
}

func jobsHere(ctx context.Context, a Actions, c Call) (jobs []cron.Job, zone string, err error) {
	if jobs, err = a.Jobs(ctx, c); err != nil {
		return nil, "", err
	}
	_, zone, err = a.Clock(ctx, c)
	return jobs, zone, err
}

func noJobs() string {
	return "There are no jobs here. " + strings.ToUpper(remindUsage[:1]) + remindUsage[1:] + ", or " + strings.TrimPrefix(cronUsage, "write ") + "."
}

// jobLine describes one job of a list; i counts from 0.
func jobLine(i int, j cron.Job, zone string) string {
	when, next := j.Schedule.Words(zone), nextOf(j, zone)+unsent(j)
	if j.Schedule.Kind == schedule.KindAt && strings.HasPrefix(next, "next ") { // the schedule has already named the time
		return fmt.Sprintf("%d. %s, %s", i+1, j.Name, when)
	}
	return fmt.Sprintf("%d. %s (%s), %s", i+1, j.Name, when, next)
}

// unsent returns a note that the answers of a job are not sent, or "".
func unsent(j cron.Job) string {
	if p := j.State.DeliveryPause; !p.Since.IsZero() {
		return "; its answers are not sent (" + p.Reason + ")"
	}
	return ""
}

// nextOf describes when a job fires next, or why it does not.
func nextOf(j cron.Job, zone string) string {
	switch {
	case j.Invalid != "":
		return "can't be read any more"
	case j.Pause != nil && j.Pause.Until.IsZero():
		return "paused"
	case j.Pause != nil:
		return "paused until " + j.Schedule.Shown(j.Pause.Until, zone)
	case j.AutoDisabled:
		return "switched off after failures"
	case !j.Enabled || j.State.NextRunAt.IsZero():
		return "no longer planned"
	}
	return "next " + j.Schedule.Shown(j.State.NextRunAt, zone)
}

// DurationWords formats a duration without the zero units of its String: 2h, 1h30m, 90ms.
func DurationWords(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

const (
	// maxOffered is how many jobs are offered at once. Other jobs can be named by their number.
	maxOffered = 20
	// maxJobLabel is the length to which the name of a job is cut on a button, maxJobText the
	// length to which its text is cut in its description.
	maxJobLabel = 40
	maxJobText  = 400
)

// onJob acts on one job and names it in the reply, so that the person notices a wrong number.
// Without a number it asks for the job. A change that may have been made before is not repeated:
// the numbers may have changed since, and it would affect another job.
func onJob(ctx context.Context, a Actions, c Call, verb, arg string) (Answer, error) {
	if verb == "remove" {
		verb = "rm"
	}
	if arg == "" {
		return askWhich(ctx, a, c, verb)
	}
	if c.Again && verb != "show" {
		return Answer{}, errInterrupted()
	}
	job, note, err := findJob(ctx, a, c, arg)
	if err != nil {
		return Answer{}, err
	}
	switch verb {
	case "show":
		return showJob(ctx, a, c, job)
	case "pause":
		note = cmp.Or(note, "paused in the chat")
		return Answer{Text: "Paused: " + job.Name + "."}, a.PauseJob(ctx, c, job.ID, note)
	case "resume":
		return resume(ctx, a, c, job)
	case "run":
		reason, err := a.RunJob(ctx, c, job.ID)
		if err == nil && reason != "" {
			return Answer{Text: job.Name + " wasn't started: " + strings.ReplaceAll(reason, "-", " ") + "."}, nil
		}
		return Answer{Text: "Started: " + job.Name + "."}, err
	default:
		return Answer{Text: "Removed: " + job.Name + "."}, a.RemoveJob(ctx, c, job.ID)
	}
}

// errInterrupted is the error of a command that was interrupted by a crash and must not be
// repeated.
func errInterrupted() error {
	return chat.Errorf(chat.CodeConflict, "I was interrupted and don't know whether it's done; check /jobs, and repeat the command if it isn't")
}

// askWhich offers the jobs to which a verb applies.
func askWhich(ctx context.Context, a Actions, c Call, verb string) (Answer, error) {
	jobs, zone, err := jobsHere(ctx, a, c)
	if err != nil || len(jobs) == 0 {
		return Answer{Text: noJobs()}, err
	}
	fits := func(j cron.Job) bool {
		switch verb {
		case "pause":
			return j.Enabled && j.Pause == nil
		case "resume":
			return resumable(j)
		}
		return true
	}
	choice := whichJob(verb, jobs, fits)
	if choice == nil {
		return Answer{Text: "There's no job here to " + verb + "."}, nil
	}
	choice.Typed = "Write /cron " + verb + " and the number."
	lines := []string{"Which one?"}
	for i, j := range jobs {
		if fits(j) {
			lines = append(lines, jobLine(i, j, zone))
		}
	}
	return Answer{Text: strings.Join(lines, "\n"), Choice: choice}, nil
}

// whichJob returns a choice with one button for each job that fits, nil when no job does. A button
// holds the job's id, so it refers to the same job when the list changes.
func whichJob(verb string, jobs []cron.Job, fits func(cron.Job) bool) *chat.Choice {
	choice := &chat.Choice{}
	for i, j := range jobs {
		if !fits(j) || len(choice.Rows) == maxOffered {
			continue
		}
		label := strconv.Itoa(i+1) + ". " + cutRunes(j.Name, maxJobLabel)
		choice.Rows = append(choice.Rows, []chat.Button{{Label: label, Text: "/cron " + verb + " " + j.ID}})
	}
	if len(choice.Rows) == 0 {
		return nil
	}
	return choice
}

// showJob describes a job and its last run, and offers the commands for it.
func showJob(ctx context.Context, a Actions, c Call, j cron.Job) (Answer, error) {
	_, zone, err := a.Clock(ctx, c)
	if err != nil {
		return Answer{}, err
	}
	text := fmt.Sprintf("%s (%s), %s", j.Name, j.Schedule.Words(zone), nextOf(j, zone)+unsent(j))
	if !j.State.LastRunAt.IsZero() {
		text += fmt.Sprintf("\nlast run %s: %s", j.Schedule.Shown(j.State.LastRunAt, zone), j.State.LastState)
	}
	if body := strings.TrimSpace(j.Payload.Text); body != "" && body != j.Name {
		text += "\n" + cutRunes(body, maxJobText)
	}
	first := chat.Button{Label: "Pause", Text: "/cron pause " + j.ID}
	if resumable(j) {
		first = chat.Button{Label: "Resume", Text: "/cron resume " + j.ID}
	}
	return Answer{Text: text, Choice: &chat.Choice{
		Rows:  [][]chat.Button{{first, {Label: "Run now", Text: "/cron run " + j.ID}, {Label: "Remove", Text: "/cron rm " + j.ID}}},
		Typed: "Write " + strings.TrimSuffix(first.Text, " "+j.ID) + ", /cron run or /cron rm with the number of the job.",
	}}, nil
}

// resumable reports whether resuming the job has an effect: it is paused, switched off, or its
// deliveries are paused.
func resumable(j cron.Job) bool {
	return j.Pause != nil || j.AutoDisabled || !j.State.DeliveryPause.Since.IsZero()
}

func cutRunes(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return strings.TrimSpace(string(r[:limit-1])) + "…"
	}
	return s
}

func resume(ctx context.Context, a Actions, c Call, job cron.Job) (Answer, error) {
	_, zone, err := a.Clock(ctx, c)
	if err != nil {
		return Answer{}, err
	}
	if job, err = a.ResumeJob(ctx, c, job.ID); err != nil {
		return Answer{}, err
	}
	return Answer{Text: "Resumed: " + job.Name + ", " + nextOf(job, zone) + "."}, nil
}

// findJob finds a job by its number in the list, its id or its name. Words after a number are
// returned as note.
func findJob(ctx context.Context, a Actions, c Call, arg string) (job cron.Job, note string, err error) {
	jobs, err := a.Jobs(ctx, c)
	if err != nil {
		return job, "", err
	}
	word, rest, _ := cutWord(arg)
	if n, err := strconv.Atoi(word); err == nil {
		if n < 1 || n > len(jobs) {
			return job, "", chat.Errorf(chat.CodeInvalid, "there is no job %d here; /jobs lists them", n)
		}
		return jobs[n-1], rest, nil
	}
	var found []cron.Job
	for _, j := range jobs {
		if j.ID == arg {
			return j, "", nil
		}
		if strings.EqualFold(j.Name, arg) {
			found = append(found, j)
		}
	}
	switch len(found) {
	case 1:
		return found[0], "", nil
	case 0:
		names := make([]string, len(jobs))
		for i, j := range jobs {
			names[i] = chat.Printable(j.Name)
		}
		return job, "", chat.Errorf(chat.CodeInvalid, "there is no job %q here; /jobs lists them%s", chat.Cut(arg, 40), words.Meant(arg, names))
	}
	return job, "", chat.Errorf(chat.CodeInvalid, "%d jobs have this name; write the number that /jobs shows", len(found))
}

const whyUsage = "write /cron why and the number or the name of a job, then the time, such as /cron why 1 9:00 or /cron why digest yesterday 9:00"

// whyJob explains a slot. The time is at the end of the arguments, in at most three words; the part
// before it names the job. Without a time it explains the newest slot. A removed job is searched
// for only when no job that exists has such a name: another job may have its name by now.
func whyJob(ctx context.Context, a Actions, c Call, text string) (Answer, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Answer{}, chat.Errorf(chat.CodeInvalid, "%s", whyUsage)
	}
	most := min(3, len(words)-1)
	name := func(n int) string { return strings.Join(words[:len(words)-n], " ") }
	explain := func(id string, n int) (Answer, error) {
		x, err := a.ExplainJob(ctx, c, id, strings.Join(words[len(words)-n:], " "))
		if err != nil {
			return Answer{}, inChatWords(err)
		}
		return Answer{Text: x.Sentence()}, nil
	}
	var refused error
	for n := most; n >= 0; n-- {
		job, note, err := findJob(ctx, a, c, name(n))
		if err == nil && note == "" {
			return explain(job.ID, n)
		}
		refused = cmp.Or(refused, err) // nil when more words follow a number: they belong to the time
	}
	for n := most; n >= 0; n-- {
		if id, err := a.RemovedJob(ctx, c, name(n)); err != nil {
			return Answer{}, err
		} else if id != "" {
			return explain(id, n)
		}
	}
	return Answer{}, cmp.Or(refused, error(chat.Errorf(chat.CodeInvalid, "%s", whyUsage)))
}
