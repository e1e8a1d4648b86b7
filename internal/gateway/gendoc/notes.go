package main

import (
	"maps"
	"slices"
	"strings"
)

// namespace is a page with the methods whose names begin with one of Families or are in Methods.
type namespace struct {
	File, Title, Lists, About string
	Families, Methods, Events []string
}

func (n namespace) has(method string) bool {
	family, _, _ := strings.Cut(method, ".")
	return slices.Contains(n.Methods, method) || slices.Contains(n.Families, family) && !slices.Contains(forOthers(), method)
}

// forOthers names the methods that exist for clients of other gateways only.
func forOthers() []string {
	return []string{"question.list", "plugin.approval.list", "taskSuggestions.list", "cron.create", "cron.delete", "cron.toggle", "scheduler.status"}
}

// namespaces lists the pages of docs/protocol in their order; the last one has the types that
// several pages need.
func namespaces() []namespace {
	return []namespace{
		{File: "README.md"},
		{File: "connect.md", Title: "Connect", Lists: "scopes, visibility, limits and deadlines, close codes"},
		{
			File: "chat.md", Title: "Messages", Lists: "send a message, follow its answer, stop it, read a conversation", Families: []string{"chat", "agent", "wake", "commands"},
			Events: []string{"chat", "agent"}, About: "Send messages, follow answers while they are written, and read what was said.",
		},
		{
			File: "sessions.md", Title: "Sessions", Lists: "list, search, follow, reset and delete conversations", Families: []string{"sessions", "toc"}, Events: []string{"sessions.changed"},
			About: "A session is one conversation with one agent.",
		},
		{
			File: "jobs.md", Title: "Jobs", Lists: "create jobs, preview schedules, read what happened at a scheduled time", Families: []string{"cron"}, Events: []string{"cron"},
			About: "A job sends a message to an agent on a schedule. laneway records each scheduled time, whether the job ran or not.",
		},
		{
			File: "runs.md", Title: "Runs, tasks and lanes", Lists: "what runs, what waits for what, sub-agents", Families: []string{"runs", "tasks", "lanes"}, Events: []string{"lanes"},
			About: "A run is one turn of an agent. A task is a turn that another turn asked for. A lane limits how many run at once.",
		},
		{
			File: "people.md", Title: "People and questions", Lists: "approve chat users, answer what an agent asks, channels", Families: []string{"questions", "channels"}, Events: []string{"questions.changed"},
			About: "Who may write to the bots, and what agents ask them.",
		},
		{
			File: "gateway.md", Title: "The gateway", Lists: "health, status, what needs a person, agents, usage", Families: []string{"health", "status", "needs", "agents", "usage"},
			Events: []string{"tick", "shutdown", "health"}, About: "The health of the gateway, its agents, and what they cost.",
		},
		{File: "errors.md", Title: "Errors", Lists: "every code, its meaning, and when to try again"},
		{File: "openclaw.md", Title: "Clients of OpenClaw and GoClaw", Lists: "the two views, and what is accepted and ignored", Methods: forOthers()},
		{File: "types.md", Title: "Types on several pages", Lists: "types that more than one of these pages needs"},
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
			Does: "Stops a run of the session by its id; without an id the oldest running one, or otherwise the oldest waiting one; with `all` everything that was accepted. " +
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
		"sessions.subscribe":   {Does: "Sends this connection the events of every visible session, until `sessions.unsubscribe`, another `sessions.subscribe` or the end of the connection. For a list of sessions, use `deltas: false`: the connection then receives only `sessions.changed` and the end of each run."},
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
		"cron.preview": {Does: "Previews the next scheduled times of a job, of a schedule, or of a job as an edit would change it, and what the next clock changes do to them.", Errors: []string{"CRON_INVALID_SCHEDULE", "CRON_JOB_NOT_FOUND"}},
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
		"questions.changed": {"the capability `laneway-ext`, read scope; the person whose questions they are, and administrators", "An agent has asked a person, a question was answered, or the turn that asked no longer waits. `questions.list` returns the open ones."},
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
