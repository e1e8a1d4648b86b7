package wire

// Task is a task: a turn that a running turn requested.
type Task struct {
	ID          string `json:"id"`                                                                                                     // also the id of its run
	SessionKey  string `json:"sessionKey"`                                                                                             // its own session
	AgentID     string `json:"agentId"`                                                                                                // the agent that works on it
	Lane        string `json:"lane"`                                                                                                   // subagent or team
	ParentRunID string `json:"parentRunId"`                                                                                            // the run that requested it
	RootRunID   string `json:"rootRunId"`                                                                                              // the run at the root of its tree
	Text        string `json:"text"`                                                                                                   // the beginning of its request
	State       string `json:"state" rule:"enum=waiting|running|yielded|stopping|done"`                                                // yielded: it waits for its own tasks
	Outcome     string `json:"outcome,omitempty" rule:"enum=answered|merged|superseded|stopped|stale|dropped|failed|interrupted|dead"` // how it ended
	Reason      string `json:"reason,omitempty"`                                                                                       // why it ended like this
	Error       string `json:"error,omitempty"`                                                                                        // the reason as a sentence
	Background  bool   `json:"background"`                                                                                             // no turn waits for it; its result is announced later
	CreatedAt   int64  `json:"createdAt"`                                                                                              // in Unix milliseconds
	StartedAt   int64  `json:"startedAt,omitempty"`                                                                                    // in Unix milliseconds
	EndedAt     int64  `json:"endedAt,omitempty"`                                                                                      // in Unix milliseconds
}

// TasksListParams are the parameters of tasks.list.
type TasksListParams struct {
	SessionKey string `json:"sessionKey,omitempty" rule:"min=1,max=512"` // only tasks of trees that began in this session
	Open       bool   `json:"open,omitempty"`                            // only tasks that have not ended
	Limit      *int64 `json:"limit,omitempty" rule:"min=1,max=200"`      // the most tasks; absent = 100
}

// TasksListResult is the result of tasks.list.
type TasksListResult struct {
	TS    int64  `json:"ts"`    // the time of the gateway in Unix milliseconds
	Tasks []Task `json:"tasks"` // the newest first
}

// TaskParams are the parameters of tasks.get and tasks.stop.
type TaskParams struct {
	ID string `json:"id" rule:"required,min=1,max=128"` // the task
}

// TasksGetResult is the result of tasks.get.
type TasksGetResult struct {
	Task *Task `json:"task"` // null when the task does not exist or is not visible
}

// TasksStopResult is the result of tasks.stop.
type TasksStopResult struct {
	OK      bool     `json:"ok"`      // always true
	Stopped bool     `json:"stopped"` // something was stopped
	RunIDs  []string `json:"runIds"`  // the runs that were stopped
}
