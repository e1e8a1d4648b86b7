package postgres

import "laneway/internal/cron"

// usualChange reports whether a job differs only in the columns of jobStatesSQL, and in what follows from the ledger.
func usualChange(old *storedJob, next *cron.Job) bool {
	return old.broken == "" && cron.SameBesidesCounters(&old.Job, next)
}
