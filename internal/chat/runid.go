package chat

import "strings"

// gatewayPrincipal is the owner's token. Its keys are the ids of its runs as they are.
const gatewayPrincipal = "gateway"

// RunIDOf is the id of the run that a caller names by an idempotency key, in the store and everywhere inside. It has the principal in it, so that
// one key of two principals is two runs: `<principal>:<key>`, of the owner's token the key alone. Keys and principals have no ':'; ids of cron runs
// have two.
func RunIDOf(principal, key string) string {
	if key == "" || principal == gatewayPrincipal {
		return key
	}
	return principal + ":" + key
}

// ShownRunID is what callers see of the id of a run: the key that it was named by, and any other id as it is.
func ShownRunID(id string) string {
	if _, key, ok := strings.Cut(id, ":"); ok && !strings.Contains(key, ":") {
		return key
	}
	return id
}
