package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	// maxOffered is how many jobs are offered at once. Other jobs can be named by their number.
	maxOffered = 20
	// maxJobLabel is the length to which the name of a job is cut on a button, maxJobText the length to which its text is cut in its
	// description.
	maxJobLabel = 40
	maxJobText  = 400
)

// onJob acts on one job and names it in the reply, so that the person notices a wrong number. Without a number it asks for the job. A
// change that may have been made before is not repeated: the numbers may have changed since, and it would affect another job.
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
		if note == "" {
			note = "paused in the chat"
		}
		return Answer{Text: "Paused: " + job.Name + "."}, a.PauseJob(ctx, c, job.ID, note)
	case "resume":
		return resume(ctx, a, c, job)
	case "run":
		reason, err := a.RunJob(ctx, c, job.ID)
		if err == nil && reason != "" {
			return Answer{Text: job.Name + " was not started: " + strings.ReplaceAll(reason, "-", " ") + "."}, nil
		}
		return Answer{Text: "Started: " + job.Name + "."}, err
	default:
		return Answer{Text: "Removed: " + job.Name + "."}, a.RemoveJob(ctx, c, job.ID)
	}
}

// errInterrupted is the error of a command that was interrupted by a crash and must not be repeated.
func errInterrupted() error {
	return chat.Errorf(chat.CodeConflict, "I was interrupted and do not know whether it was done; look at /jobs and write it again if not")
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
		return Answer{Text: "There is no job here to " + verb + "."}, nil
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

// whichJob returns a choice with one button for each job that fits, nil when no job does. A button holds the job's id, so it refers to the
// same job when the list changes.
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
	text := fmt.Sprintf("%s (%s), %s", j.Name, ScheduleWords(j.Schedule, zone), nextOf(j, zone)+unsent(j))
	if !j.State.LastRunAt.IsZero() {
		text += fmt.Sprintf("\nlast run %s: %s", ShownTime(j.State.LastRunAt, zone), j.State.LastState)
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

// resumable reports whether resuming the job has an effect: it is paused, switched off, or its deliveries are paused.
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

// findJob finds a job by its number in the list, its id or its name. Words after a number are returned as note.
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
		return job, "", chat.Errorf(chat.CodeInvalid, "there is no job %q here; /jobs lists them", chat.Cut(arg, 40))
	}
	return job, "", chat.Errorf(chat.CodeInvalid, "%d jobs have this name; give the number that /jobs shows", len(found))
}
