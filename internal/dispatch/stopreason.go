package dispatch

import "laneway/internal/store"

// Reasons of stops that chat events know.
const (
	reasonStop    = store.ReasonStop
	reasonStopAll = "stopall"
	reasonReset   = "reset"
)
