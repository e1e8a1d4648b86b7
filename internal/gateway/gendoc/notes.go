package main

import "maps"

// note has the facts about a method that are not in the table.
type note struct {
	// Does describes a call. Errors are the detail codes of the method, in addition to those that every method has.
	Does   string
	Errors []string
}

// notes returns a note for every possible method of the table.
func notes() map[string]note {
	all := map[string]note{}
	for _, part := range []map[string]note{opsNotes(), chatNotes(), sessionNotes(), cronReadNotes(), cronWriteNotes()} {
		maps.Copy(all, part)
	}
	return all
}

func opsNotes() map[string]note {
	return map[string]note{
		"connect":              {Does: "Opens the connection: agrees on a version, checks a credential, grants scopes."},
		"health":               {Does: "Shows whether the gateway works; `probe` looks anew instead of at the last picture."},
		"status":               {Does: "Shows numbers: clients, sessions, cron, lanes, nodes. Answers with the database down."},
		"needs.list":           {Does: "Lists what a person has to look at, the worst first: faults of the gateway, failing and invalid jobs, missed slots and messages given up in the last 24 hours, long waits, people who ask to talk, questions of agents that wait for the caller. A caller that sees its own gets its own jobs and messages. It asks the store each time."},
		"runs.list":            {Does: "Lists turns and the messages that wait to become one: open ones, the oldest first, with what each waits for and its place, and ended ones, the newest first, with the reason. Messages that share the turn of another are not listed. A caller that sees its own gets its own."},
		"runs.get":             {Does: "Shows one run with its tasks, what it sends, and the attempts of a run of a job."},
		"lanes.status":         {Does: "Shows every lane of this gateway, with `cluster` of every live one."},
		"channels.status":      {Does: "Shows the channels and their accounts; never a token."},
		"agents.list":          {Does: "Lists the agents."},
		"commands.list":        {Does: "Lists the chat commands, which are messages that begin with a slash."},
		"question.list":        {Does: "Answers with an empty list; terminal clients ask at their start."},
		"plugin.approval.list": {Does: "Answers with an empty list; terminal clients ask at their start."},
		"taskSuggestions.list": {Does: "Answers with an empty list; terminal clients ask at their start."},
		"scheduler.status":     {Does: "Lists jobs as a scheduler sees them, built-in ones included."},
		"usage.status":         {Does: "Shows what agents have used today, and the budgets with what is left of them."},
		"usage.list":           {Does: "Lists what agents have used, by day and principal, agent, model or job."},
		"channels.pairing.list": {
			Does: "Lists people who wait to be let in to a channel; never the codes that they see.",
		},
		"channels.pairing.approve": {Does: "Lets a person in: the id of the list, or the code that the person was shown. They get a message unless `notify` is false."},
		"channels.pairing.revoke": {
			Does: "Takes back that a person may talk; they may ask again.",
		},
		"channels.pairing.dismiss": {Does: "Turns a person away."},
	}
}

func chatNotes() map[string]note {
	return map[string]note{
		"chat.send": {
			Does: "Gives a session a message. It is durable and has its place in the session's order when the answer comes. A message that is a chat command " +
				"is carried out at once, outside of queue and lanes, with the rights of the connection. In mode `interrupt` it ends what runs and waits as superseded, " +
				"and a full queue does not refuse it.",
			Errors: []string{"QUEUE_FULL", "GATEWAY_DRAINING", "UNKNOWN_AGENT_ID", "SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
		"chat.abort": {
			Does: "Stops a run of the session by its id; without one the oldest that runs, or else the oldest that waits; with `all` everything accepted so far. " +
				"It does not wait for a lane.", Errors: []string{"SESSION_NOT_FOUND"},
		},
		"chat.history": {
			Does: "Reads a session. With the `deltaCursor` of an earlier answer it gives exactly the messages after it, which is how a client that was away catches up. " +
				"Rows of role `system` name what was stopped, interrupted or dropped.",
		},
		"agent": {
			Does: "Runs one turn and waits for its end: two response frames with the same id. Nothing is merged with it. Losing the connection cancels nothing; the " +
				"same key attaches again.",
			Errors: []string{"RUN_FAILED", "QUEUE_DROPPED", "MESSAGE_STALE", "LANE_CLEARED", "QUEUE_FULL", "GATEWAY_DRAINING", "UNKNOWN_AGENT_ID", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
		"wake": {
			Does: "Gives a session a text in the name of the system: `now` starts a turn, `next-heartbeat` goes before the next one.", Errors: []string{"SESSION_NOT_FOUND", "UNKNOWN_AGENT_ID", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
	}
}

func sessionNotes() map[string]note {
	return map[string]note{
		"tasks.list":        {Does: "Lists tasks, the newest first: turns that running turns have asked for. A caller that sees its own only gets its own."},
		"tasks.get":         {Does: "Shows one task."},
		"tasks.stop":        {Does: "Stops a task and all that is below it. It does not wait for a lane."},
		"questions.list":    {Does: "Lists the questions of agents that wait for the caller's answer, the oldest first; to administrators those of all persons. Whose answer counts is in each."},
		"questions.answer":  {Does: "Answers a question, as its button in a chat does. The first answer counts; the same one again is answered as the first was.", Errors: []string{"NOT_FOUND"}},
		"sessions.list":     {Does: "Lists the visible sessions, newest first."},
		"sessions.describe": {Does: "Shows one session."},
		"sessions.search": {
			Does: "Finds messages in the transcripts of the visible sessions, the newest first: those in which each word of the query occurs, or begins a word. " +
				"Case and accents do not count. The current and the archived transcripts are searched, and messages are found as soon as they are stored.",
		},
		"sessions.subscribe":   {Does: "From now on this connection gets the events of every visible session, until `sessions.unsubscribe`, another `sessions.subscribe` or the end of the connection. A list of sessions needs no deltas: with `deltas: false` it gets `sessions.changed` and the end of each run."},
		"sessions.unsubscribe": {Does: "From now on this connection gets events only of the runs that it starts later. It ends `sessions.subscribe`."},
		"toc.list": {
			Does: "Lists summaries of what was said, by day, week or month, the newest first: of the visible sessions. They are made where the setting " +
				"`history.summary_agent` names an agent.",
		},
		"sessions.reset": {
			Does: "Stops everything of a session, archives its transcript and begins an empty one.", Errors: []string{"SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"},
		},
		"sessions.delete": {
			Does: "Stops everything of a session and deletes it; with `deleteTranscript:false` its transcripts stay in the store, and with the principal who owned the session.", Errors: []string{"SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"},
		},
	}
}

func cronReadNotes() map[string]note {
	return map[string]note{
		"cron.status":  {Does: "Shows whether jobs fire, how many there are and when the next one does."},
		"cron.list":    {Does: "Lists jobs, page by page. In a list by cursor, a job that changes its place meanwhile is in two pages or in none."},
		"cron.get":     {Does: "Shows one job.", Errors: []string{"CRON_JOB_NOT_FOUND"}},
		"cron.runs":    {Does: "Lists what became of every planned fire, newest first."},
		"cron.explain": {Does: "Says what became of a slot, or of each slot of at most 26 hours: whether it ran, why not, and what to do.", Errors: []string{"CRON_JOB_NOT_FOUND"}},
		"cron.preview": {Does: "Computes the next fires of a job or of a schedule, with the function that decides the real ones, and what the next changes of the clock do to its slots.", Errors: []string{"CRON_INVALID_SCHEDULE", "CRON_JOB_NOT_FOUND"}},
	}
}

func cronWriteNotes() map[string]note {
	write := []string{"CRON_INVALID_SCHEDULE", "CRON_UNSUPPORTED", "CRON_PAYLOAD_DISABLED", "CRON_KEY_CONFLICT", "SESSION_NOT_FOUND", "UNKNOWN_AGENT_ID", "RATE_LIMITED"}
	one := []string{"CRON_JOB_NOT_FOUND", "RATE_LIMITED"}
	return map[string]note{
		"cron.add":      {Does: "Makes a job, or updates the one with the same key; an equal one changes nothing.", Errors: write},
		"cron.update":   {Does: "Changes the members that `patch` names; null puts a default back.", Errors: append([]string{"CRON_JOB_NOT_FOUND", "CRON_JOB_CHANGED"}, write...)},
		"cron.remove":   {Does: "Removes a job; its history stays.", Errors: one},
		"cron.run":      {Does: "Enqueues one fire by hand; it never counts as a planned one.", Errors: one},
		"cron.cancel":   {Does: "Stops a run of a job, or all of its active runs, whatever the lanes do.", Errors: []string{"CRON_RUN_NOT_FOUND", "CRON_JOB_NOT_FOUND", "RATE_LIMITED"}},
		"cron.pause":    {Does: "Pauses a job, with a note about the reason, until a time or until it is resumed.", Errors: one},
		"cron.resume":   {Does: "Lets a paused job, and one that failures have switched off, fire again; what it missed is not made up for. Answers go out again that were held back because their chat was gone (`deliveryPaused`).", Errors: one},
		"cron.backfill": {Does: "Runs the slots of a past window, one after the other; `dryRun` only lists them. A slot with a run that ended well is left alone unless `force` is set. A repeated backfill has a number in its run ids, `backfill:2:…`; its `trigger` is `backfill`.", Errors: append([]string{"LIMIT_EXCEEDED"}, one...)},
		"cron.create":   {Does: "`cron.add` with the names of another gateway family.", Errors: write},
		"cron.delete":   {Does: "`cron.remove` with the names of another gateway family.", Errors: one},
		"cron.toggle":   {Does: "Switches a job on or off.", Errors: one},
	}
}
