package cron

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

const (
	// LateAfter is how long a due fire may wait for its start before its job counts as late.
	LateAfter = 10 * time.Second
	// MaxOutcomes is how many of the latest outcomes of each job a list can have.
	MaxOutcomes = 14
)

// JobCondition is a condition of a job. A job can meet several.
type JobCondition string

// The conditions that jobs are listed by.
const (
	JobsFailing JobCondition = "failing" // its last runs failed
	JobsPaused  JobCondition = "paused"
	JobsRunning JobCondition = "running"
	JobsLate    JobCondition = "late" // a fire has been due for [LateAfter] and has not started
	JobsInvalid JobCondition = "invalid"
	JobsUnsent  JobCondition = "unsent" // its answers are kept, see [DeliveryPause]
)

// JobFilter of Jobs. Zero fields do not restrict.
type JobFilter struct {
	Visible       string
	IncludeSystem bool
	IDs           []string
	Enabled       *bool // the job fires or does not
	Condition     JobCondition
	Query         string
	Kind          schedule.Kind
	LastState     RunState
	NeverRan      bool // no run has ended yet
	Agent         string
	Target        string // the channel or the chat to which an answer is sent
	// SortBy is nextRunAt (default), updatedAt, lastRunAt, failing (failed runs in a row), name or id; jobs without the value come last, and ties are ordered
	// by id.
	SortBy        string
	Descending    bool
	Limit, Offset int
	// After is JobPage.Next of the previous page; the order must be the same. Jobs whose position changed meanwhile may be on both pages or on neither.
	After string
	// WithoutPayload leaves the payload of every job empty: it is not read and does not count towards the bytes of a page.
	WithoutPayload bool
	// Counts and Outcomes request further data of a page; Outcomes is how many per job, at most MaxOutcomes.
	Counts   bool
	Outcomes int
}

// LastStateWord is the value with which a store compares its column: "" = any, "never" = no run yet.
func (f JobFilter) LastStateWord() string {
	if f.NeverRan {
		return "never"
	}
	return string(f.LastState)
}

// TargetTexts are two pieces of JSON; a stored delivery to the target contains one of them.
func (f JobFilter) TargetTexts() (channel, chatID string) {
	text, err := encodeText(f.Target)
	if err != nil { // a string can always be encoded
		return "", ""
	}
	return `"channel":` + text, `"to":` + text
}

// JobPage is a page of a list. Revision and Total stay equal until a job is added, changed or removed.
type JobPage struct {
	Jobs     []Job
	Total    int
	Revision string
	Next     string // the value of JobFilter.After for the next page; "" = the last page
	Counts   JobCounts
	Outcomes map[string][]RunOutcome // by id of the job, the newest slot first
}

// JobCounts are how many jobs a caller may see, and how many of them meet each condition.
type JobCounts struct{ All, Failing, Paused, Running, Late, Invalid int }

// RunOutcome is the outcome of a slot, in short.
type RunOutcome struct {
	Slot     time.Time
	State    RunState
	Reason   Reason
	Duration time.Duration
}

// JobPlace is a position in a list: after the job with this id and this sort value.
type JobPlace struct {
	Absent bool   // the job has no value
	Value  string // "" with Absent
	ID     string
}

// PlaceOf is the position after a job in the list of the filter.
func (f JobFilter) PlaceOf(j *Job) string {
	var value string
	var absent bool
	number := func(n int64) { value, absent = strconv.FormatInt(n, 10), n == 0 }
	switch f.SortBy {
	case "name":
		value, absent = j.Name, j.Name == ""
	case "id":
	case "updatedAt":
		number(millis(j.UpdatedAt))
	case "lastRunAt":
		number(millis(j.State.LastRunAt))
	case "failing":
		number(int64(j.State.ConsecutiveErrors))
	default:
		number(millis(j.State.NextRunAt))
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join([]string{f.order(), strconv.FormatBool(absent), j.ID, value}, "\n")))
}

// Place is the position in After; chat.ErrInvalid when it belongs to a list in another order.
func (f JobFilter) Place() (JobPlace, error) {
	text, err := base64.RawURLEncoding.DecodeString(f.After)
	part := strings.SplitN(string(text), "\n", 4)
	if err != nil || len(part) != 4 || part[0] != f.order() {
		return JobPlace{}, chat.Errorf(chat.CodeInvalid, "the cursor is not of a list in this order: begin at the first page")
	}
	return JobPlace{Absent: part[1] == "true", ID: part[2], Value: part[3]}, nil
}

func (f JobFilter) order() string { return f.SortBy + strconv.FormatBool(f.Descending) }
