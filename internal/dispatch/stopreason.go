package dispatch

import (
	"strings"
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
