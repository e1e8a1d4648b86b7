package main

import "maps"

// namespace is a page with some methods, events and types. In the list of pages, Lists says what it
// is for. Types names those that the methods of other pages need as well; a type that one page
// alone needs, or that is a member of a named one, is there by itself.
type namespace struct {
	File, Title, Lists, About string
	Methods, Events, Types    []string
}

// namespaces lists the pages of docs/protocol in their order.
func namespaces() []namespace {
	all := []namespace{
		{File: "README.md"},
		{File: "methods.md", Title: "All methods and events", Lists: "a sentence about each, with its scope"},
		{File: "connect.md", Title: "Connect", Lists: "credentials, scopes, visibility"},
		{File: "limits.md", Title: "Limits and close codes", Lists: "limits, deadlines, why a connection is closed", Events: []string{"tick", "shutdown"}},
		{File: "errors.md", Title: "Errors", Lists: "every code, its meaning, and when to try again"},
	}
	for _, part := range [][]namespace{chatPages(), sessionPages(), jobPages(), runPages(), gatewayPages()} {
		all = append(all, part...)
	}
	return append(all,
		namespace{
			File: "openclaw.md", Title: "Clients of OpenClaw", Lists: "the two views, and what is accepted and ignored",
			Methods: []string{"question.list", "plugin.approval.list", "taskSuggestions.list"},
		},
		namespace{
			File: "goclaw.md", Title: "Clients of GoClaw", Lists: "the methods that have other names there",
			Methods: []string{"cron.create", "cron.delete", "cron.toggle", "scheduler.status"},
			About:   "A few methods have the names that GoClaw's clients use.",
		})
}

func chatPages() []namespace {
	return []namespace{
		{
			File: "chat.md", Title: "Messages", Lists: "send a message to a session, stop it", Methods: []string{"chat.send", "chat.abort", "wake"},
			Types: []string{"Attachment"}, About: "Send messages to a session. The answer comes as [events](chat-events.md).",
		},
		{
			File: "agent.md", Title: "One turn", Lists: "run one turn and wait for its answer", Methods: []string{"agent"}, Types: []string{"Usage"},
			About: "Run one turn of an agent, and wait for its end.",
		},
		{
			File: "chat-events.md", Title: "Events of a run", Lists: "follow an answer while it is written", Events: []string{"chat", "agent"}, Types: []string{"ChatMessage"},
			About: "Follow answers and tool calls while they happen.",
		},
		{File: "chat-history.md", Title: "Read a conversation", Lists: "history, and what is new since a cursor", Methods: []string{"chat.history"}, About: "Read what was said."},
		{
			File: "message.md", Title: "Stored messages", Lists: "what a message of a conversation has", Types: []string{"HistoryMessage", "PendingInputs", "TextPart"},
			About: "Messages as [`chat.history`](chat-history.md) returns them.",
		},
		{File: "commands.md", Title: "Chat commands", Lists: "the commands that begin with a slash", Methods: []string{"commands.list"}, About: "Which commands you can send as a message."},
	}
}

func sessionPages() []namespace {
	return []namespace{
		{
			File: "sessions.md", Title: "Sessions", Lists: "list conversations, look at one", Methods: []string{"sessions.list", "sessions.describe"},
			Types: []string{"SessionRow", "SessionsListResult"}, About: "A session is one conversation with one agent.",
		},
		{
			File: "sessions-change.md", Title: "Follow, reset and delete sessions", Lists: "events of sessions, an empty conversation, deletion",
			Methods: []string{"sessions.subscribe", "sessions.unsubscribe", "sessions.reset", "sessions.delete"}, Events: []string{"sessions.changed"},
			About: "Follow what happens in all sessions, and end conversations.",
		},
		{
			File: "search.md", Title: "Search and summaries", Lists: "find messages; summaries by day, week and month",
			Methods: []string{"sessions.search", "toc.list"}, About: "Find what was said before.",
		},
	}
}

func jobPages() []namespace {
	return []namespace{
		{
			File: "jobs.md", Title: "Create and edit jobs", Lists: "create a job, change it", Methods: []string{"cron.add", "cron.update"},
			About: "A job sends a message to an agent on a schedule. Its members are explained in [Members of a job](job-members.md).",
		},
		{
			File: "jobs-read.md", Title: "Read jobs", Lists: "list jobs, get one", Methods: []string{"cron.list", "cron.get"},
			About: "The answers contain [jobs](job.md).",
		},
		{
			File: "jobs-run.md", Title: "Run, pause and remove jobs", Lists: "run now, cancel, pause, resume, remove",
			Methods: []string{"cron.run", "cron.cancel", "cron.pause", "cron.resume", "cron.remove"}, About: "Start and stop what a job does.",
		},
		{
			File: "jobs-schedule.md", Title: "Preview and backfill", Lists: "preview a schedule, run a past period", Methods: []string{"cron.preview", "cron.backfill"},
			About: "When a job will run, and runs of a period that has passed.",
		},
		{
			File: "jobs-runs.md", Title: "Runs of jobs", Lists: "what happened at a scheduled time, and why", Methods: []string{"cron.runs", "cron.explain"},
			About: "laneway records each scheduled time, whether the job ran or not.",
		},
		{
			File: "ledger.md", Title: "Recorded runs", Lists: "what the record of a scheduled time has", Types: []string{"LedgerEntry"},
			About: "One entry for each scheduled time and each run by hand.",
		},
		{
			File: "jobs-events.md", Title: "Follow jobs", Lists: "the state of the schedule, events of jobs", Methods: []string{"cron.status"}, Events: []string{"cron"},
			About: "Whether the schedule is on, and what happens to jobs.",
		},
		{File: "job.md", Title: "Jobs as clients see them", Lists: "every member of a job", Types: []string{"Job", "DeliveryPreview"}, About: "What methods and events return about a job."},
		{
			File: "job-members.md", Title: "Members of a job", Lists: "schedule, payload, delivery, retry, alerts", About: "What you set when you create or edit a job, and read in a job.",
			Types: []string{"JobSchedule", "JobPayload", "JobDelivery", "JobDeliveryPaused", "JobRetry", "JobMissed", "JobDST", "JobPause", "FailureAlert"},
		},
	}
}

func runPages() []namespace {
	return []namespace{
		{
			File: "runs.md", Title: "Runs", Lists: "what runs, what waits for what, where an answer is", Methods: []string{"runs.list", "runs.get"},
			About: "A run is one turn of an agent, or a message that waits for one.",
		},
		{File: "run.md", Title: "Runs as clients see them", Lists: "every member of a run", Types: []string{"Run", "RunAnswer"}, About: "What [runs.list and runs.get](runs.md) return."},
		{
			File: "tasks.md", Title: "Tasks", Lists: "sub-agents: list, get, stop", Methods: []string{"tasks.list", "tasks.get", "tasks.stop"}, Types: []string{"Task"},
			About: "A task is a turn that another turn asked for.",
		},
		{
			File: "lanes.md", Title: "Lanes", Lists: "what waits in each lane", Methods: []string{"lanes.status"}, Events: []string{"lanes"},
			About: "A lane limits how many turns run at once.",
		},
	}
}

func gatewayPages() []namespace {
	return []namespace{
		{
			File: "people.md", Title: "Users", Lists: "approve chat users, revoke their access",
			Methods: []string{"channels.pairing.list", "channels.pairing.approve", "channels.pairing.dismiss", "channels.pairing.revoke"},
			About:   "Who may write to the bots.",
		},
		{
			File: "channels.md", Title: "Channels", Lists: "bots and their state", Methods: []string{"channels.status"}, Types: []string{"PairingAccount"},
			About: "The chat networks and their accounts.",
		},
		{
			File: "questions.md", Title: "Questions of agents", Lists: "answer what an agent asks", Methods: []string{"questions.list", "questions.answer"},
			Events: []string{"questions.changed"}, About: "What agents ask users, such as permission to run a command.",
		},
		{File: "needs.md", Title: "What needs a person", Lists: "problems, the worst first", Methods: []string{"needs.list"}, About: "One list of everything that someone should look at."},
		{File: "health.md", Title: "Health of the gateway", Lists: "whether the gateway works", Methods: []string{"health"}, Events: []string{"health"}, About: "Whether the gateway works, and what does not."},
		{File: "status.md", Title: "Figures of the gateway", Lists: "clients, sessions, jobs, lanes and nodes", Methods: []string{"status"}, Types: []string{"LaneCount"}, About: "Figures about the gateway and its nodes."},
		{File: "agents.md", Title: "Agents", Lists: "agents, their models and tools", Methods: []string{"agents.list"}, About: "The agents of the gateway."},
		{File: "usage.md", Title: "Tokens and costs", Lists: "tokens, costs, budgets", Methods: []string{"usage.status", "usage.list"}, About: "What agents cost."},
	}
}

// note has the facts about a method that are not in the table.
type note struct {
	// Does describes a call. Errors are the detail codes of the method, in addition to those that
	// every method has.
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
		"health":               {Does: "Shows whether the gateway works. With `probe` it checks again instead of returning the last result."},
		"status":               {Does: "Shows figures about clients, sessions, jobs, lanes and nodes. It works even when the database is unavailable."},
		"needs.list":           {Does: "Lists what needs a person, the worst first: problems of the gateway, failing and invalid jobs, answers that cannot be sent, missed slots and abandoned messages of the last 24 hours, long waits, replicas that have crashed, requests for access, and questions of agents to the caller. A caller that sees only its own data receives its own jobs and messages. Each call queries the store."},
		"runs.list":            {Does: "Lists turns and the messages that wait to become one: open ones, the oldest first, with what each waits for and its position, and ended ones, the newest first, with the reason. Messages that share the turn of another message are not listed. A caller that sees only its own data receives its own."},
		"runs.get":             {Does: "Shows one run with its tasks, its messages and, for a run of a job, its attempts, and says where its answer is: what it waits for, where it ran, and what became of each message that it sent."},
		"lanes.status":         {Does: "Shows the lanes of this gateway; each replica has its own."},
		"channels.status":      {Does: "Shows the channels and their accounts, without tokens."},
		"agents.list":          {Does: "Lists the agents."},
		"commands.list":        {Does: "Lists the chat commands: messages that begin with a slash."},
		"question.list":        {Does: "Returns an empty list; terminal clients call it when they start."},
		"plugin.approval.list": {Does: "Returns an empty list; terminal clients call it when they start."},
		"taskSuggestions.list": {Does: "Returns an empty list; terminal clients call it when they start."},
		"scheduler.status":     {Does: "Lists jobs in the format of GoClaw, including built-in ones."},
		"usage.status":         {Does: "Shows the usage of today, and the budgets with their usage."},
		"usage.list":           {Does: "Lists usage by day and by principal, agent, model or job."},
		"channels.pairing.list": {
			Does: "Lists people who have requested access to a channel, without their codes.",
		},
		"channels.pairing.approve": {Does: "Grants a person access, by the id in the list or by the code that the person received. They receive a message unless `notify` is false."},
		"channels.pairing.revoke": {
			Does: "Revokes the access of a person; they may request it again.",
		},
		"channels.pairing.dismiss": {Does: "Refuses a request for access."},
	}
}

func chatNotes() map[string]note {
	return map[string]note{
		"chat.send": {
			Does: "Sends a message to a session. When the answer arrives, the message is durable and has its place in the session's order. A chat command " +
				"runs immediately, outside of queue and lanes, with the scopes of the connection. In mode `interrupt` the message ends running and waiting work as superseded, " +
				"and a full queue does not refuse it.",
			Errors: []string{"QUEUE_FULL", "GATEWAY_DRAINING", "UNKNOWN_AGENT_ID", "SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
		"chat.abort": {
			Does: "Stops a run of the session by its id. Without an id, it stops the oldest running one, or otherwise the oldest waiting one; with `all`, everything that was accepted. " +
				"It does not wait for a lane.", Errors: []string{"SESSION_NOT_FOUND"},
		},
		"chat.history": {
			Does: "Reads a session. With the `deltaCursor` of an earlier answer it returns exactly the messages after it, so that a client can catch up after it reconnects. " +
				"Messages with the role `system` report what was stopped, interrupted or dropped.",
		},
		"agent": {
			Does: "Runs one turn and waits for its end: two response frames with the same id. No other message is merged with it. A lost connection cancels nothing; a call with the " +
				"same key attaches to the run again.",
			Errors: []string{"RUN_FAILED", "QUEUE_DROPPED", "MESSAGE_STALE", "LANE_CLEARED", "QUEUE_FULL", "GATEWAY_DRAINING", "UNKNOWN_AGENT_ID", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
		"wake": {
			Does: "Adds a system text to a session: `now` starts a turn, `next-heartbeat` puts the text before the next one.", Errors: []string{"SESSION_NOT_FOUND", "UNKNOWN_AGENT_ID", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
	}
}

func sessionNotes() map[string]note {
	return map[string]note{
		"tasks.list":        {Does: "Lists tasks, the newest first: turns that running turns have requested. A caller that sees only its own data receives its own."},
		"tasks.get":         {Does: "Shows one task."},
		"tasks.stop":        {Does: "Stops a task and its sub-tasks. It does not wait for a lane."},
		"questions.list":    {Does: "Lists the open questions of agents to the caller, the oldest first; for administrators, those to all people. Each names the principal whose answer counts."},
		"questions.answer":  {Does: "Answers a question, like its button in a chat. The first answer counts; a repetition of it returns the same result.", Errors: []string{"NOT_FOUND"}},
		"sessions.list":     {Does: "Lists the visible sessions, newest first."},
		"sessions.describe": {Does: "Shows one session."},
		"sessions.search": {
			Does: "Finds messages in the transcripts of the visible sessions, the newest first: those that contain each word of the query, or a word that begins with it. " +
				"Case and accents are ignored. Current and archived transcripts are searched, and messages are found as soon as they are stored.",
		},
		"sessions.subscribe":   {Does: "Sends this connection the events of every visible session. It ends with `sessions.unsubscribe`, another `sessions.subscribe` or the connection. For a list of sessions, use `deltas: false`: the connection then receives only `sessions.changed` and the end of each run."},
		"sessions.unsubscribe": {Does: "Ends `sessions.subscribe`. After that, this connection receives only events of runs that it starts later."},
		"toc.list": {
			Does: "Lists summaries of the visible sessions by day, week or month, the newest first. There are none unless the setting " +
				"`history.summary_agent` names an agent.",
		},
		"sessions.reset": {
			Does: "Stops all work of a session, archives its transcript and begins an empty one.", Errors: []string{"SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"},
		},
		"sessions.delete": {
			Does: "Stops all work of a session and deletes it. With `deleteTranscript:false` its transcripts stay in the store, owned by the same principal.", Errors: []string{"SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"},
		},
	}
}

func cronReadNotes() map[string]note {
	return map[string]note{
		"cron.status":  {Does: "Shows whether the schedule is on, how many jobs there are, and when the next one runs."},
		"cron.list":    {Does: "Lists jobs, page by page. In a list by cursor, a job whose position changes meanwhile may be on two pages or on none."},
		"cron.get":     {Does: "Shows one job.", Errors: []string{"CRON_JOB_NOT_FOUND"}},
		"cron.runs":    {Does: "Lists the record of each scheduled time, newest first: whether it ran, with which outcome, or why not."},
		"cron.explain": {Does: "Explains a scheduled time, or each one of at most 26 hours: whether it ran, why not, and what to do.", Errors: []string{"CRON_JOB_NOT_FOUND"}},
		"cron.preview": {Does: "Previews the next scheduled times of a job, of a schedule, or of an edited job. It also shows what the next clock changes do to them.", Errors: []string{"CRON_INVALID_SCHEDULE", "CRON_JOB_NOT_FOUND"}},
	}
}

func cronWriteNotes() map[string]note {
	write := []string{"CRON_INVALID_SCHEDULE", "CRON_UNSUPPORTED", "CRON_PAYLOAD_DISABLED", "CRON_KEY_CONFLICT", "SESSION_NOT_FOUND", "UNKNOWN_AGENT_ID", "RATE_LIMITED"}
	one := []string{"CRON_JOB_NOT_FOUND", "RATE_LIMITED"}
	return map[string]note{
		"cron.add":      {Does: "Creates a job, or updates the one with the same key. An identical call changes nothing.", Errors: write},
		"cron.update":   {Does: "Changes the members in `patch`; null restores the default.", Errors: append([]string{"CRON_JOB_NOT_FOUND", "CRON_JOB_CHANGED"}, write...)},
		"cron.remove":   {Does: "Removes a job; its history is kept.", Errors: one},
		"cron.run":      {Does: "Runs a job now, in addition to its schedule.", Errors: one},
		"cron.cancel":   {Does: "Stops a run of a job, or all of its active runs. It does not wait for a lane.", Errors: []string{"CRON_RUN_NOT_FOUND", "CRON_JOB_NOT_FOUND", "RATE_LIMITED"}},
		"cron.pause":    {Does: "Pauses a job, with a note about the reason, until a time or until it is resumed.", Errors: one},
		"cron.resume":   {Does: "Resumes a job that was paused, or was disabled after failures; missed times are not caught up. Answers that were held back because their chat was gone (`deliveryPaused`) are sent again.", Errors: one},
		"cron.backfill": {Does: "Runs the scheduled times of a past period, one after the other; `dryRun` only lists them. A time whose run succeeded is skipped unless `force` is set. A repeated backfill has a number in its run ids, `backfill:2:…`; its `trigger` is `backfill`.", Errors: append([]string{"LIMIT_EXCEEDED"}, one...)},
		"cron.create":   {Does: "`cron.add`, with the param names of GoClaw.", Errors: write},
		"cron.delete":   {Does: "`cron.remove`, with the param names of GoClaw.", Errors: one},
		"cron.toggle":   {Does: "Enables or disables a job, with the param names of GoClaw.", Errors: one},
	}
}

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
		"questions.changed": {"the capability `laneway-ext`, read scope; the person whose questions they are, and administrators", "An agent has asked a user, a question was answered, or the turn that asked no longer waits. Call `questions.list` for the open ones."},
		"cron":              {"read scope; the job must be visible", "A job or one of its runs has changed, with the values of the entry in `cron.runs`. With the capability `cron-brief`, events have no job, error and answer, at most 20 are sent in a second, and one with the action `many` replaces the rest."},
	}
}

// errorNote is one detail code of an error.
type errorNote struct {
	Code    string `json:"code"`
	Under   string `json:"under"`
	Means   string `json:"means"`
	Details string `json:"details,omitempty"`
}

// errorNotes lists the detail code of every refusal, with its code.
func errorNotes() []errorNote {
	const bad, cannot = "INVALID_REQUEST", "UNAVAILABLE"
	return []errorNote{
		{"AUTH_TOKEN_MISSING", bad, "`connect` has no secret", "`authReason`, `recommendedNextStep`"},
		{"AUTH_TOKEN_MISMATCH", bad, "the token is wrong; the reason is `token_expired` if it has expired", "`authReason`, `recommendedNextStep`"},
		{"AUTH_PASSWORD_MISMATCH", bad, "the password is wrong", "`authReason`, `recommendedNextStep`"},
		{"AUTH_RATE_LIMITED", cannot, "too many failed attempts from this address; wait", "`recommendedNextStep`"},
		{"ROLE_NOT_SUPPORTED", bad, "only the role `operator` is supported", ""},
		{"PROTOCOL_MISMATCH", bad, "client and gateway have no version in common", "`clientMinProtocol`, `clientMaxProtocol`, `expectedProtocol`, `minimumProbeProtocol`"},
		{"TOO_MANY_CONNECTIONS", cannot, "the credential has too many connections", ""},
		{"MISSING_SCOPE", "FORBIDDEN", "the connection lacks the scope of this method", "`missingScope`, `requiredScopes`"},
		{"LIMIT_EXCEEDED", bad, "a string, list or number exceeds its limit", "`field`, `limit`"},
		{"UNKNOWN_AGENT_ID", bad, "the agent does not exist", "`agentId`"},
		{"NOT_FOUND", bad, "the object does not exist for this caller, or is no longer open", ""},
		{"SESSION_NOT_FOUND", bad, "the call would write into a session that is not visible to this credential", "`key`"},
		{"IDEMPOTENCY_KEY_REUSED", bad, "the key was used with other params, or by another method", "`idempotencyKey`"},
		{"CRON_JOB_NOT_FOUND", bad, "the job does not exist or is not visible", "`jobId`"},
		{"CRON_JOB_CHANGED", bad, "the job has changed since you read it", "`expectedConfigRevision`, `actualConfigRevision`"},
		{"CRON_INVALID_SCHEDULE", bad, "expression, zone, time or limit is invalid", "`field`, `reason`"},
		{"CRON_UNSUPPORTED", bad, "the gateway does not support this feature", "`field`"},
		{"CRON_PAYLOAD_DISABLED", bad, "the operator did not enable this kind of payload", "`kind`, `enableWith`"},
		{"CRON_KEY_CONFLICT", bad, "another job has the key", "`key`, `jobId`"},
		{"CRON_RUN_NOT_FOUND", bad, "the run does not exist", "`runId`"},
		{"RATE_LIMITED", cannot, "too many calls; nothing was done", "`method`, `limit`"},
		{"QUEUE_FULL", cannot, "the queue of the session is full", "`sessionKey`, `cap`"},
		{"QUEUE_DROPPED", cannot, "a newer message displaced an accepted one", "`runId`"},
		{"MESSAGE_STALE", cannot, "a message was accepted before a stop of all work", "`runId`"},
		{"LANE_CLEARED", cannot, "an accepted message was removed by a reset or a deletion", "`runId`"},
		{"RUN_FAILED", cannot, "the turn ended without a result", "`runId`, `status`"},
		{"GATEWAY_DRAINING", cannot, "the gateway is stopping; retry later", "`reason`"},
		{"DATABASE_UNAVAILABLE", cannot, "the database is unavailable", ""},
		{"TOO_MANY_IN_FLIGHT", cannot, "too many unanswered requests on this connection", ""},
		{"REQUEST_TIMEOUT", cannot, "no answer in time; the effect may still happen", ""},
		{"INTERNAL", cannot, "a defect of laneway; the log has the id", "`errorId`"},
	}
}
