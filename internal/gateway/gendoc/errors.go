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
		{"AUTH_TOKEN_MISSING", bad, "`connect` has no secret", "`authReason`, `recommendedNextStep`"},
		{"AUTH_TOKEN_MISMATCH", bad, "the token is not a credential; the reason is `token_expired` when it was one", "`authReason`, `recommendedNextStep`"},
		{"AUTH_PASSWORD_MISMATCH", bad, "the password is not a credential", "`authReason`, `recommendedNextStep`"},
		{"AUTH_RATE_LIMITED", cannot, "too many failed attempts from this address; wait", "`recommendedNextStep`"},
		{"ROLE_NOT_SUPPORTED", bad, "only the role `operator` is supported", ""},
		{"PROTOCOL_MISMATCH", bad, "client and gateway have no version in common", "`clientMinProtocol`, `clientMaxProtocol`, `expectedProtocol`, `minimumProbeProtocol`"},
		{"TOO_MANY_CONNECTIONS", cannot, "the credential has too many connections", ""},
		{"MISSING_SCOPE", "FORBIDDEN", "the connection has no scope for this method", "`missingScope`, `requiredScopes`"},
		{"LIMIT_EXCEEDED", bad, "a string, list or number exceeds its limit", "`field`, `limit`"},
		{"UNKNOWN_AGENT_ID", bad, "the agent does not exist", "`agentId`"},
		{"NOT_FOUND", bad, "the object does not exist for this caller, or is no longer open", ""},
		{"SESSION_NOT_FOUND", bad, "the call would write into a session that is not visible to this credential", "`key`"},
		{"IDEMPOTENCY_KEY_REUSED", bad, "the key was used with other params, or by another method", "`idempotencyKey`"},
		{"CRON_JOB_NOT_FOUND", bad, "the job does not exist or is not visible", "`jobId`"},
		{"CRON_JOB_CHANGED", bad, "the job changed since it was read", "`expectedConfigRevision`, `actualConfigRevision`"},
		{"CRON_INVALID_SCHEDULE", bad, "expression, zone, time or limit is invalid", "`field`, `reason`"},
		{"CRON_UNSUPPORTED", bad, "a feature that this gateway does not have", "`field`"},
		{"CRON_PAYLOAD_DISABLED", bad, "the operator did not enable this kind of payload", "`kind`, `enableWith`"},
		{"CRON_KEY_CONFLICT", bad, "another job has the key", "`key`, `jobId`"},
		{"CRON_RUN_NOT_FOUND", bad, "the run does not exist", "`runId`"},
		{"RATE_LIMITED", cannot, "too many calls; nothing was done", "`method`, `limit`"},
		{"QUEUE_FULL", cannot, "the queue of the session is full", "`sessionKey`, `cap`"},
		{"QUEUE_DROPPED", cannot, "an accepted message was removed for a newer one", "`runId`"},
		{"MESSAGE_STALE", cannot, "a message was accepted before a stop of all work", "`runId`"},
		{"LANE_CLEARED", cannot, "an accepted message was removed by a reset or a deletion", "`runId`"},
		{"RUN_FAILED", cannot, "the turn ended without a result", "`runId`, `status`"},
		{"GATEWAY_DRAINING", cannot, "the gateway is about to stop; retry later", "`reason`"},
		{"DATABASE_UNAVAILABLE", cannot, "the database is unavailable", ""},
		{"TOO_MANY_IN_FLIGHT", cannot, "too many unanswered requests on this connection", ""},
		{"REQUEST_TIMEOUT", cannot, "no answer in time; the effect may still happen", ""},
		{"INTERNAL", cannot, "a defect; the log of the gateway has the id", "`errorId`"},
	}
}
