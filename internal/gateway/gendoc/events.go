package main

// eventNote says what an event is: who hears it and what it carries.
type eventNote struct {
	Name    string `json:"name"`
	Heard   string `json:"heardBy"`
	Payload string `json:"payload"`
}

func eventNotes() map[string]eventNote {
	const following = "the connection that started the run, and connections that called `sessions.subscribe`; the session must be visible"
	return map[string]eventNote{
		"tick":     {Heard: "everybody who is authenticated", Payload: "`{ts}`"},
		"shutdown": {Heard: "everybody who is authenticated", Payload: "`{reason, restartExpectedMs?}`; reason `draining` when the stop begins, `stopped` right before close 1012"},
		"health":   {Heard: "read scope; when it changes, at most once a second, at least once a minute", Payload: "as the answer of `health`, in the view of the connection; the frame has `stateVersion`"},
		"lanes":    {Heard: "read scope and the capability `laneway-ext`; when it changes, at most once a second", Payload: "`lanes` and `sessions` as in `lanes.status`"},
		"chat": {Heard: following, Payload: "`{runId, sessionKey, agentId, seq, state, ...}`. `delta`: `deltaText` is new text, `message` the text so far; with `replace:true` `deltaText` " +
			"is all of it. `final`: `message?`, `usage?`, `stopReason?`; a message that went into a later turn ends with `stopReason:\"merged\"` and `yielded:true`. " +
			"`aborted`: `stopReason` says who stopped it. `error`: `errorMessage`, `errorKind`. Each run has exactly one `final`, `aborted` or `error`, and nothing follows it; `seq` only grows, over attempts too"},
		"agent":            {Heard: following + "; stream `tool` needs the capability `tool-events`", Payload: "`{runId, seq, stream, ts, data}`; streams `lifecycle` (`data.phase` start, end or error), `assistant` (`text`, `delta`), `tool`"},
		"sessions.changed": {Heard: "connections that called `sessions.subscribe`; the session must be visible", Payload: "`{sessionKey, agentId, reason, ts, session?}`"},
		"cron": {Heard: "read scope; the job must be visible", Payload: "`{jobId, action, job, runId?, ...}`; action `added`, `updated`, `removed`, `started`, `scheduled` (another attempt " +
			"will follow) or `finished`, with the values of the entry in `cron.runs`"},
	}
}
