package chat

import "strings"

// gatewayPrincipal is the principal of the owner's token. Its keys are used as run ids without a prefix.
const gatewayPrincipal = "gateway"

// RunIDOf returns the id of the run that a caller names by an idempotency key, in the store and inside the gateway. It contains the
// principal, so that one key of two principals names two runs: `<principal>:<key>`, or the key alone for the owner's token. Keys and
// principals contain no ':'; ids of cron runs contain two.
func RunIDOf(principal, key string) string {
	if key == "" || principal == gatewayPrincipal {
		return key
	}
	return principal + ":" + key
}

// ShownRunID returns the form of a run id for callers: the key of a run that was named by a key, and any other id unchanged.
func ShownRunID(id string) string {
	if _, key, ok := strings.Cut(id, ":"); ok && !strings.Contains(key, ":") {
		return key
	}
	return id
}
