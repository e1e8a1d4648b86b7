package dispatch

import "laneway/internal/store"

// Reasons of stops in chat events.
const (
	reasonStop    = store.ReasonStop
	reasonStopAll = "stopall"
	reasonReset   = "reset"
)
