package postgres

import (
	"bytes"

	"laneway/internal/cron"
)

// usualChange reports whether a job differs only in the columns of jobStatesSQL, and in what follows from the ledger.
func usualChange(old *storedJob, next *cron.Job) bool {
	st, was := next.State, &old.State
	st.RunCount, st.ErrorCount, st.ConsecutiveErrors, st.ConsecutiveSkipped = was.RunCount, was.ErrorCount, was.ConsecutiveErrors, was.ConsecutiveSkipped
	st.LastRunAt, st.LastState, st.LastDuration, st.LastAlertAt = was.LastRunAt, was.LastState, was.LastDuration, was.LastAlertAt
	st.LastError, st.LastErrorClass, st.LastDelivery, st.LastDeliveryError = was.LastError, was.LastErrorClass, was.LastDelivery, was.LastDeliveryError
	st.Queued, st.RunningAt = was.Queued, was.RunningAt
	return old.broken == "" && st == *was && sameDefinition(&old.Job, next)
}

// sameDefinition compares all of two jobs but their states, member by member: reflect takes 5 µs for it. A test changes each member.
func sameDefinition(a, b *cron.Job) bool {
	return a.ID == b.ID && a.Key == b.Key && a.KeyDerived == b.KeyDerived && a.Name == b.Name && a.DisplayName == b.DisplayName &&
		a.Description == b.Description && a.Owner == b.Owner && a.Principal == b.Principal && a.Agent == b.Agent && a.AccountID == b.AccountID &&
		a.Lane == b.Lane && a.Schedule == b.Schedule && a.JitterMs == b.JitterMs && a.StartsAt.Equal(b.StartsAt) && a.EndsAt.Equal(b.EndsAt) &&
		a.MaxRuns == b.MaxRuns && a.Session == b.Session && a.WakeMode == b.WakeMode && a.Payload.Kind == b.Payload.Kind &&
		a.Payload.Text == b.Payload.Text && bytes.Equal(a.Payload.Options, b.Payload.Options) && sameDelivery(&a.Delivery, &b.Delivery) &&
		a.Alert.Off == b.Alert.Off && a.Alert.After == b.Alert.After && a.Alert.Cooldown == b.Alert.Cooldown &&
		a.Alert.IncludeSkipped == b.Alert.IncludeSkipped && sameDelivery(&a.Alert.Delivery, &b.Alert.Delivery) && a.Overlap == b.Overlap &&
		a.Missed == b.Missed && a.Retry == b.Retry && a.Timeout == b.Timeout && a.AtMostOnce == b.AtMostOnce && a.DeleteAfter == b.DeleteAfter &&
		a.PauseAfter == b.PauseAfter && a.Enabled == b.Enabled && (a.Pause == nil) == (b.Pause == nil) && (a.Pause == nil || *a.Pause == *b.Pause) &&
		a.AutoDisabled == b.AutoDisabled && a.Invalid == b.Invalid && a.Revision == b.Revision && a.CreatedAt.Equal(b.CreatedAt) && a.UpdatedAt.Equal(b.UpdatedAt)
}

func sameDelivery(a, b *cron.Delivery) bool {
	return a.Mode == b.Mode && a.Channel == b.Channel && a.To == b.To && a.Thread == b.Thread && a.Account == b.Account &&
		a.BestEffort == b.BestEffort && bytes.Equal(a.Options, b.Options)
}
