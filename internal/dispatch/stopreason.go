package dispatch

import (
	"strings"

	"laneway/internal/store"
)

// joinBy carries the reason of a stop together with who asked: through the scheduler's cause, and through the store to other processes.
func joinBy(reason, who string) string { return reason + " " + who }

// reasonOf is the reason in what joinBy made. A name alone, as older versions have stored it, is a plain stop.
func reasonOf(by string) string {
	reason, _, ok := strings.Cut(by, " ")
	if !ok {
		return reasonStop
	}
	return reason
}

// Reasons of stops that chat events know.
const (
	reasonStop    = "stop"
	reasonStopAll = "stopall"
	reasonReset   = "reset"
)

// abortReason is the reason of an end as watchers know it: a closed set, in which whatever cancelled a job's run is a stop.
func abortReason(reason string) string {
	switch reason {
	case reasonStopAll, reasonReset, store.ReasonSuperseded, "stale", "cleared", "draining":
		return reason
	default:
		return reasonStop
	}
}
