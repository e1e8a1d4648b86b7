package main

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
		{"AUTH_TOKEN_MISSING", bad, "no secret in `connect`", "`authReason`, `recommendedNextStep`"},
		{"AUTH_TOKEN_MISMATCH", bad, "the token is not a credential; the reason is `token_expired` when it was one", "`authReason`, `recommendedNextStep`"},
		{"AUTH_PASSWORD_MISMATCH", bad, "the password is not a credential", "`authReason`, `recommendedNextStep`"},
		{"AUTH_RATE_LIMITED", cannot, "too many failed attempts from this address; wait", "`recommendedNextStep`"},
		{"ROLE_NOT_SUPPORTED", bad, "only the role `operator` is known", ""},
		{"PROTOCOL_MISMATCH", bad, "no version in common", "`clientMinProtocol`, `clientMaxProtocol`, `expectedProtocol`, `minimumProbeProtocol`"},
		{"TOO_MANY_CONNECTIONS", cannot, "the credential has too many connections", ""},
		{"MISSING_SCOPE", "FORBIDDEN", "the connection has no scope for this method", "`missingScope`, `requiredScopes`"},
		{"LIMIT_EXCEEDED", bad, "a text, list or number is over its bound", "`field`, `limit`"},
		{"UNKNOWN_AGENT_ID", bad, "there is no such agent", "`agentId`"},
		{"NOT_FOUND", bad, "there is no such object for this caller, or it is no longer open", ""},
		{"SESSION_NOT_FOUND", bad, "the call would write into a session that is not visible to this credential", "`key`"},
		{"IDEMPOTENCY_KEY_REUSED", bad, "the key was used with other params, or by another method", "`idempotencyKey`"},
		{"CRON_JOB_NOT_FOUND", bad, "there is no such job, or it is not visible", "`jobId`"},
		{"CRON_JOB_CHANGED", bad, "the job changed since it was read", "`expectedConfigRevision`, `actualConfigRevision`"},
		{"CRON_INVALID_SCHEDULE", bad, "expression, zone, time or bound is wrong", "`field`, `reason`"},
		{"CRON_UNSUPPORTED", bad, "a feature that this gateway does not have", "`field`"},
		{"CRON_PAYLOAD_DISABLED", bad, "the operator did not enable this kind of payload", "`kind`, `enableWith`"},
		{"CRON_KEY_CONFLICT", bad, "another job has the key", "`key`, `jobId`"},
		{"CRON_RUN_NOT_FOUND", bad, "there is no such run", "`runId`"},
		{"RATE_LIMITED", cannot, "too many calls; nothing was done", "`method`, `limit`"},
		{"QUEUE_FULL", cannot, "the queue of the session takes no more", "`sessionKey`, `cap`"},
		{"QUEUE_DROPPED", cannot, "an accepted message made room for a newer one", "`runId`"},
		{"MESSAGE_STALE", cannot, "an accepted message became too old", "`runId`"},
		{"LANE_CLEARED", cannot, "an accepted message was cleared away", "`runId`"},
		{"RUN_FAILED", cannot, "the turn ended without a result", "`runId`, `status`"},
		{"GATEWAY_DRAINING", cannot, "the gateway is about to stop; another one takes over, or it comes back", "`reason`"},
		{"DATABASE_UNAVAILABLE", cannot, "the database does not answer", ""},
		{"TOO_MANY_IN_FLIGHT", cannot, "too many unanswered requests on this connection", ""},
		{"REQUEST_TIMEOUT", cannot, "no answer in time; the effect may still happen", ""},
		{"INTERNAL", cannot, "a defect; the id is in the log of the gateway", "`errorId`"},
	}
}
