package cron

import "bytes"

// SameBesidesCounters reports whether two jobs differ only in the fields that the end of a run usually changes, and in those derived from the ledger: counters,
// the last run, its delivery and alert, and the active runs. Stores write such a change with a short statement. It compares field by field, because reflection
// takes 5 µs of every fire; a test changes each field.
func SameBesidesCounters(a, b *Job) bool {
	s, was := b.State, &a.State
	s.RunCount, s.ErrorCount, s.ConsecutiveErrors, s.ConsecutiveSkipped = was.RunCount, was.ErrorCount, was.ConsecutiveErrors, was.ConsecutiveSkipped
	s.LastRunAt, s.LastState, s.LastDuration, s.LastAlertAt = was.LastRunAt, was.LastState, was.LastDuration, was.LastAlertAt
	s.LastError, s.LastErrorClass, s.LastDelivery, s.LastDeliveryError = was.LastError, was.LastErrorClass, was.LastDelivery, was.LastDeliveryError
	s.Queued, s.RunningAt = was.Queued, was.RunningAt
	return s == *was && sameDefinition(a, b)
}

// sameDefinition compares everything of two jobs except their states.
func sameDefinition(a, b *Job) bool {
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

func sameDelivery(a, b *Delivery) bool {
	return a.Mode == b.Mode && a.Channel == b.Channel && a.To == b.To && a.Thread == b.Thread && a.Account == b.Account &&
		a.BestEffort == b.BestEffort && bytes.Equal(a.Options, b.Options)
}
