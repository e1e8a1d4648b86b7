package command_test

import (
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
)

// execute executes what a person typed or chose with a button.
func execute(t *testing.T, h *fakeBackend, text string) command.Answer {
	t.Helper()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	cmd, name, args, ok := table.Parse(text, "")
	if !ok {
		t.Fatalf("%s is no command", text)
	}
	answer, err := cmd.Run(t.Context(), h, command.Call{Session: chat.MainKey("main"), Name: name, Args: args})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return answer
}

// offered returns the labels and commands of the buttons below an answer.
func offered(a command.Answer) (labels, texts string) {
	if a.Choice == nil {
		return "", ""
	}
	var l, s []string
	for _, row := range a.Choice.Rows {
		for _, b := range row {
			l, s = append(l, b.Label), append(s, b.Text)
		}
	}
	return strings.Join(l, "|"), strings.Join(s, "|")
}

func TestCommandsOfferWhatAPersonMayChoose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, labels, texts, typed string }{
		{"/queue", "queue|followup|interrupt|✓ collect|steer|default|Remove 2 waiting messages", "/queue queue|/queue followup|/queue interrupt|/queue collect|/queue steer|/queue default|/queue clear", "Write /queue queue, "},
		{"/jobs", "1. tea|2. news|3. NEWS", "/cron show a|/cron show b|/cron show c", "Write /cron show N"},
		{"/cron list", "1. tea|2. news|3. NEWS", "/cron show a|/cron show b|/cron show c", "Write /cron show N"},
		{"/cron show 1", "Pause|Run now|Remove", "/cron pause a|/cron run a|/cron rm a", "Write /cron pause, "},
		{"/cron show 2", "Resume|Run now|Remove", "/cron resume b|/cron run b|/cron rm b", "Write /cron resume, "},
		{"/cron pause", "1. tea", "/cron pause a", "Write /cron pause and the number"},
		{"/cron resume", "2. news", "/cron resume b", "Write /cron resume and the number"},
		{"/cron rm", "1. tea|2. news|3. NEWS", "/cron rm a|/cron rm b|/cron rm c", "Write /cron rm and the number"},
		{"/dir", "✓ /srv/app|/srv/site", "/dir 1|/dir 2", "Write /dir 1 (/srv/app), /dir 2 (/srv/site) to choose another."},
		{"/stopall", "", "", ""},
		{"/new", "", "", ""},
	} {
		h := &fakeBackend{jobs: someJobs(), queue: command.QueueReport{Mode: chat.ModeCollect, Waiting: 2, Cap: 10}}
		answer := execute(t, h, c.text)
		labels, texts := offered(answer)
		if labels != c.labels || texts != c.texts {
			t.Errorf("%s offers %q, which say %q; want %q and %q", c.text, labels, texts, c.labels, c.texts)
		}
		if answer.Choice != nil && !strings.HasPrefix(answer.Choice.Typed, c.typed) {
			t.Errorf("%s says to those without buttons: %q", c.text, answer.Choice.Typed)
		}
		for text := range strings.SplitSeq(texts, "|") {
			if text != "" && execute(t, h, text).Text == "" {
				t.Errorf("%s offers %s, which answers nothing", c.text, text)
			}
		}
	}
}

// Such a job is not paused, but it can be resumed.
func TestAJobThatDoesNotDoAllItWasMadeForSaysSoAndCanBeResumed(t *testing.T) {
	t.Parallel()
	for word, change := range map[string]func(j *cron.Job){
		"; its answers are not sent (blocked)": func(j *cron.Job) {
			j.State.DeliveryPause = cron.DeliveryPause{Since: now(), Reason: "blocked", Channel: "telegram:1", ChatID: "7"}
		},
		", switched off after failures": func(j *cron.Job) { j.Enabled, j.AutoDisabled = false, true },
	} {
		jobs := someJobs()[:1]
		change(&jobs[0])
		h := &fakeBackend{jobs: jobs}
		for _, text := range []string{"/jobs", "/cron show 1"} {
			if answer := execute(t, h, text); !strings.Contains(answer.Text, word) {
				t.Errorf("%s says %q, want %q in it", text, answer.Text, word)
			}
		}
		for _, text := range []string{"/cron show 1", "/cron resume"} {
			if _, texts := offered(execute(t, h, text)); !strings.HasPrefix(texts, "/cron resume a") {
				t.Errorf("%s offers %q", text, texts)
			}
		}
	}
}

// A button refers to the job that it showed, even when the list has changed since.
func TestAButtonMeansItsJobWhateverBecameOfTheList(t *testing.T) {
	t.Parallel()
	h := &fakeBackend{jobs: someJobs()}
	_, texts := offered(execute(t, h, "/cron rm"))
	third := strings.Split(texts, "|")[2]
	h.jobs = append([]cron.Job{{ID: "d", Name: "c", Enabled: true}}, h.jobs[1:]...)
	execute(t, h, third)
	if got := strings.Join(h.did, ","); got != "rm c" {
		t.Errorf("the button did %q; want the job with the id c to be removed and not the one with the name c", got)
	}
}

func TestManyJobsAreOfferedInPartAndListedInFull(t *testing.T) {
	t.Parallel()
	h := &fakeBackend{}
	for range 50 {
		h.jobs = append(h.jobs, cron.Job{ID: "x", Name: strings.Repeat("long ", 20), Enabled: true})
	}
	answer := execute(t, h, "/jobs")
	if len(answer.Choice.Rows) != 20 || strings.Count(answer.Text, "\n") != 49 {
		t.Errorf("%d of 50 are offered, %d lines", len(answer.Choice.Rows), strings.Count(answer.Text, "\n")+1)
	}
	if label := answer.Choice.Rows[0][0].Label; len([]rune(label)) > 45 {
		t.Errorf("a button is named %q", label)
	}
	if answer := execute(t, &fakeBackend{}, "/cron pause"); answer.Choice != nil || !strings.HasPrefix(answer.Text, "There are no jobs here") {
		t.Errorf("without jobs: %q, %+v", answer.Text, answer.Choice)
	}
}
