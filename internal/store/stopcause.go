package store

import "strings"

// StopCause is a string that carries the reason of a stop and its requester: in the cause of a cancelled turn, and through the store to the process that runs
// the stopped turn and to its next attempt.
func StopCause(reason, who string) string { return reason + " " + who }

// StopReason is the reason in a string that StopCause made. A name alone, as older versions have stored it, is a plain stop.
func StopReason(cause string) string {
	reason, _, ok := strings.Cut(cause, " ")
	if !ok {
		return ReasonStop
	}
	return reason
}

// ReasonStop is the reason of a stop that a person or a caller asked for.
const ReasonStop = "stop"
