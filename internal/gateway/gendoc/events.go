package main

// eventNote describes an event: which connections receive it, and its meaning.
type eventNote struct{ SentTo, Does string }

func eventNotes() map[string]eventNote {
	const following = "the connection that started the run, and connections that called `sessions.subscribe`; the session must be visible"
	return map[string]eventNote{
		"tick":     {"every authenticated connection", "A keepalive."},
		"shutdown": {"every authenticated connection", "The gateway is stopping. It is sent when the stop begins, and again right before close 1012."},
		"health":   {"read scope; when it changes, at most once a second, at least once a minute", "The state of the gateway, in the view of the connection; the frame has `stateVersion`."},
		"lanes":    {"read scope and the capability `laneway-ext`; when it or a session of any replica changes, at most once a second", "The work in the lanes of this gateway."},
		"chat": {following, "The progress of a run. A run has exactly one event `final`, `aborted` or `error`, and no event follows it; `seq` is strictly increasing, also across attempts. " +
			"A message that was merged into a later turn ends with `stopReason:\"merged\"` and `yielded:true`."},
		"agent":             {following + "; stream `tool` needs the capability `tool-events`", "The steps of a run."},
		"sessions.changed":  {"connections that called `sessions.subscribe`; the session must be visible", "A session was created, changed or removed."},
		"questions.changed": {"the capability `laneway-ext`, read scope; the person whose questions they are, and administrators", "An agent has asked a person, a question was answered, or the turn that asked no longer waits. `questions.list` returns the open ones."},
		"cron":              {"read scope; the job must be visible", "A job or one of its runs has changed, with the values of the entry in `cron.runs`. With the capability `cron-brief`, events have no job, error and answer, at most 20 are sent in a second, and one with the action `many` replaces the rest."},
	}
}
