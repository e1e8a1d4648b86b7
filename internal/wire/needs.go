package wire

// Need is a condition that needs the attention of a person.
type Need struct {
	Kind       string `json:"kind" rule:"enum=database|disk|held|stranded|stalled|cron|channel|job-disabled|job-failing|job-invalid|job-unsent|missed|dead|deliveries|stopping|lane|session|replica|version|pairing|question|agent"` // its kind
	Level      string `json:"level" rule:"enum=error|warn|ask|hint"`                                                                                                                                                                 // ask: a person waits for a decision; hint: a next step, which is not counted
	Text       string `json:"text"`                                                                                                                                                                                                  // one sentence: what is wrong
	Next       string `json:"next,omitempty"`                                                                                                                                                                                        // one sentence: what to do; absent = the text has it
	Command    string `json:"command,omitempty"`                                                                                                                                                                                     // the command line that shows or fixes it
	SinceMs    int64  `json:"sinceMs,omitempty"`                                                                                                                                                                                     // since when, in Unix milliseconds; absent = not known
	JobID      string `json:"jobId,omitempty"`                                                                                                                                                                                       // the job
	RunID      string `json:"runId,omitempty"`                                                                                                                                                                                       // the run, for runs.get
	SessionKey string `json:"sessionKey,omitempty"`                                                                                                                                                                                  // the session
	Lane       string `json:"lane,omitempty"`                                                                                                                                                                                        // the lane
	QuestionID string `json:"questionId,omitempty"`                                                                                                                                                                                  // the question, for questions.answer
	RequestID  string `json:"requestId,omitempty"`                                                                                                                                                                                   // the request of a person, for channels.pairing.approve
}

// NeedsListResult is the result of needs.list.
type NeedsListResult struct {
	TS    int64  `json:"ts"`    // the time of the gateway in Unix milliseconds
	Needs []Need `json:"needs"` // errors first, then warnings, then what waits for a decision; empty = nothing needs a person
}
