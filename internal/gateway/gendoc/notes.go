package main

import "maps"

// note is what the table cannot say about a method.
type note struct {
	// Does is one sentence, Result the shape of the answer. Errors are the finer codes that the method adds to those that every
	// method has.
	Does, Result string
	Errors       []string
}

// notes has a word for every method that the table may hold.
func notes() map[string]note {
	all := map[string]note{}
	for _, part := range []map[string]note{opsNotes(), chatNotes(), sessionNotes(), cronReadNotes(), cronWriteNotes()} {
		maps.Copy(all, part)
	}
	return all
}

func opsNotes() map[string]note {
	return map[string]note{
		"connect":              {Does: "Opens the connection: agrees on a version, checks a credential, grants scopes.", Result: "`hello-ok`, see above"},
		"health":               {Does: "Shows whether the gateway works; `probe` looks anew instead of at the last picture.", Result: "`{ok?, ts, durationMs, channels, ...}`; `ok` is absent when something is wrong. Extended: `problems`, `database`, `scheduler`, `nodeId`"},
		"status":               {Does: "Shows numbers: clients, sessions, cron, lanes, nodes. Answers with the database down.", Result: "`{ok, version, bootId, nodeId, uptimeMs, draining, clients, agents, sessions, cron, lanes, nodes}`"},
		"lanes.status":         {Does: "Shows every lane of this gateway, with `cluster` of every live one.", Result: "`{ts, nodeId, draining, unknownLaneFallbacks, lanes:[...], sessions, drops, nodes?}`; `active` includes `stopping`"},
		"channels.status":      {Does: "Shows the channels and their accounts; never a token.", Result: "`{ts, channelOrder, channelLabels, channels, channelAccounts, channelDefaultAccountId}`"},
		"agents.list":          {Does: "Lists the agents.", Result: "`{defaultId, mainKey, scope, agents:[{id, kind, name?, model?}]}`, extended also `runner`"},
		"commands.list":        {Does: "Lists the chat commands, which are messages that begin with a slash.", Result: "`{commands:[{name, textAliases, description, category, source, scope, acceptsArgs, args?}]}`"},
		"question.list":        {Does: "Answers with an empty list; terminal clients ask at their start.", Result: "`{questions:[]}`"},
		"plugin.approval.list": {Does: "Answers with an empty list; terminal clients ask at their start.", Result: "`[]`"},
		"taskSuggestions.list": {Does: "Answers with an empty list; terminal clients ask at their start.", Result: "`{suggestions:[]}`"},
		"scheduler.status":     {Does: "Lists jobs as a scheduler sees them, built-in ones included.", Result: "`{ts, nodeId, running, lastTickMs, jobs:[...]}` with snake_case members in `jobs`"},
		"channels.pairing.list": {
			Does: "Lists people who wait to be let in to a channel; never the codes that they see.", Result: "`{accounts, requests:[...], commandOwnerConfigured, limits}`. Extended: `granted`, who was let in",
		},
		"channels.pairing.approve": {Does: "Lets a person in: the id of the list, or the code that the person was shown. They are told unless `notify` is false.", Result: "`{requestId, senderId, notification, commandOwnerBootstrap}`"},
		"channels.pairing.revoke": {
			Does: "Takes back that a person may talk; they may ask again.", Result: "`{senderId, revoked}`: in how many accounts",
		},
		"channels.pairing.dismiss": {Does: "Turns a person away.", Result: "`{requestId, senderId}`"},
	}
}

func chatNotes() map[string]note {
	return map[string]note{
		"chat.send": {
			Does: "Gives a session a message. It is durable and has its place in the session's order when the answer comes. A message that is a chat command " +
				"is carried out at once, outside of queue and lanes, with the rights of the connection. In mode `interrupt` it ends what runs and waits as superseded, " +
				"and a full queue does not refuse it.",
			Result: "`{runId, status}`: `started` (also when it waits), for a repeated key `in_flight`, `ok`, `error` or `timeout`. Extended: `queued`, `position`. " +
				"A turn that waits gets an empty `chat` delta right after the answer",
			Errors: []string{"QUEUE_FULL", "GATEWAY_DRAINING", "UNKNOWN_AGENT_ID", "SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
		"chat.abort": {
			Does: "Stops a run of the session by its id; without one the oldest that runs, or else the oldest that waits; with `all` everything accepted so far. " +
				"It does not wait for a lane.",
			Result: "`{ok, aborted, runIds}`; nothing to stop is `aborted:false`, not an error", Errors: []string{"SESSION_NOT_FOUND"},
		},
		"chat.history": {
			Does: "Reads a session. With the `deltaCursor` of an earlier answer it gives exactly the messages after it, which is how a client that was away catches up. " +
				"Rows of role `system` say what was stopped, interrupted or dropped.",
			Result: "without `cursor`: `{sessionKey, sessionId, messages, hasMore, totalMessages, deltaCursor, pendingInputs, inFlightRun?, sessionInfo}`; with it: `{kind:\"delta\", " +
				"messages, deltaCursor, ...}`, or `{kind:\"reset\", ...}` when the transcript was replaced meanwhile",
		},
		"agent": {
			Does: "Runs one turn and waits for its end: two response frames with the same id. Nothing is merged with it. Losing the connection cancels nothing; the " +
				"same key attaches again.",
			Result: "first `{runId, status:\"accepted\", acceptedAt, sessionKey, agentId}`, then `{runId, status:\"ok\", summary, result:{payloads, meta}}` or an error",
			Errors: []string{"RUN_FAILED", "QUEUE_DROPPED", "MESSAGE_STALE", "LANE_CLEARED", "QUEUE_FULL", "GATEWAY_DRAINING", "UNKNOWN_AGENT_ID", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
		"wake": {
			Does:   "Says something to a session in the name of the system: `now` starts a turn, `next-heartbeat` goes before the next one.",
			Result: "`{ok, runId?}`", Errors: []string{"SESSION_NOT_FOUND", "UNKNOWN_AGENT_ID", "IDEMPOTENCY_KEY_REUSED", "RATE_LIMITED"},
		},
	}
}

func sessionNotes() map[string]note {
	return map[string]note{
		"sessions.list":      {Does: "Lists the visible sessions, newest first.", Result: "`{ts, count, totalCount, limitApplied, offset, nextOffset, hasMore, sessions, defaults}`"},
		"sessions.describe":  {Does: "Shows one session.", Result: "`{session}`: a row, or null"},
		"sessions.subscribe": {Does: "From now on this connection hears of every visible session. It ends with the connection.", Result: "`{subscribed:true}`, with params of `sessions.list` also `list`"},
		"sessions.reset": {
			Does:   "Stops everything of a session, archives its transcript and begins an empty one.",
			Result: "`{ok, key, entry:{sessionId}}`", Errors: []string{"SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"},
		},
		"sessions.delete": {
			Does:   "Stops everything of a session and deletes it; with `deleteTranscript:false` its transcripts stay in the store, and with the principal who owned the session.",
			Result: "`{ok, key, deleted, archived}`; an unknown one is `deleted:false`; `archived` names the transcript that was kept", Errors: []string{"SESSION_NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"},
		},
	}
}

func cronReadNotes() map[string]note {
	return map[string]note{
		"cron.status":  {Does: "Says whether jobs fire, how many there are and when the next one does.", Result: "`{enabled, triggersEnabled, storePath, storage, jobs, nextWakeAtMs}`"},
		"cron.list":    {Does: "Lists jobs, page by page.", Result: "`{jobs, snapshotRevision, total, offset, limit, hasMore, nextOffset, deliveryPreviews}`"},
		"cron.get":     {Does: "Shows one job.", Result: "the job; while its chat is gone, in the extended view, `deliveryPaused:{atMs, reason, channel, to}`", Errors: []string{"CRON_JOB_NOT_FOUND"}},
		"cron.runs":    {Does: "Lists what became of every planned fire, newest first.", Result: "`{entries, total, offset, limit, hasMore, nextOffset}`"},
		"cron.preview": {Does: "Computes the next fires of a job or of a schedule, with the function that decides the real ones.", Result: "`{timezone, fires, warnings}`", Errors: []string{"CRON_INVALID_SCHEDULE", "CRON_JOB_NOT_FOUND"}},
	}
}

func cronWriteNotes() map[string]note {
	write := []string{"CRON_INVALID_SCHEDULE", "CRON_UNSUPPORTED", "CRON_PAYLOAD_DISABLED", "CRON_KEY_CONFLICT", "SESSION_NOT_FOUND", "UNKNOWN_AGENT_ID", "RATE_LIMITED"}
	one := []string{"CRON_JOB_NOT_FOUND", "RATE_LIMITED"}
	return map[string]note{
		"cron.add":      {Does: "Makes a job, or updates the one with the same key; an equal one changes nothing.", Result: "the job with `deliveryPreview`; with a key of the client `{created, updated?, job, deliveryPreview}`", Errors: write},
		"cron.update":   {Does: "Changes the members that `patch` names; null puts a default back.", Result: "the job", Errors: append([]string{"CRON_JOB_NOT_FOUND", "CRON_JOB_CHANGED"}, write...)},
		"cron.remove":   {Does: "Removes a job; its history stays.", Result: "`{ok, removed}`", Errors: one},
		"cron.run":      {Does: "Enqueues one fire by hand; it never counts as a planned one.", Result: "`{ok, enqueued, runId, processInstanceId}` or `{ok, ran:false, reason}`", Errors: one},
		"cron.cancel":   {Does: "Stops a run of a job, or all of its active runs, whatever the lanes do.", Result: "`{ok, cancelled}`", Errors: []string{"CRON_RUN_NOT_FOUND", "CRON_JOB_NOT_FOUND", "RATE_LIMITED"}},
		"cron.pause":    {Does: "Pauses a job, with a note that says why, until a time or until it is resumed.", Result: "the job", Errors: one},
		"cron.resume":   {Does: "Lets a paused job, and one that failures have switched off, fire again; what it missed is not made up for. Answers go out again that were held back because their chat was gone (`deliveryPaused`).", Result: "the job", Errors: one},
		"cron.backfill": {Does: "Runs the slots of a past window, one after the other; `dryRun` only lists them. A slot with a run that ended well is left alone unless `force` is set. A repeated backfill has a number in its run ids, `backfill:2:…`; its `trigger` is `backfill`.", Result: "`{ok, enqueued, existing, fires}`", Errors: append([]string{"LIMIT_EXCEEDED"}, one...)},
		"cron.create":   {Does: "`cron.add` with the names of another gateway family.", Result: "`{job}`", Errors: write},
		"cron.delete":   {Does: "`cron.remove` with the names of another gateway family.", Result: "`{deleted:true}`", Errors: one},
		"cron.toggle":   {Does: "Switches a job on or off.", Result: "`{jobId, enabled}`", Errors: one},
	}
}
