package cli

import (
	"reflect"
	"testing"

	"laneway/internal/wire"
)

func TestTheStateOfAJobIsTheFirstReasonNotToFireOrSend(t *testing.T) {
	t.Parallel()
	gone, pause := &wire.JobDeliveryPaused{Reason: "blocked"}, &wire.JobPause{}
	for want, j := range map[string]wire.Job{
		"invalid": {Invalid: "no fields", Paused: pause}, "paused": {Paused: pause}, "disabled": {DeliveryPaused: gone},
		"enabled, not sent: blocked": {Enabled: true, DeliveryPaused: gone}, "enabled": {Enabled: true},
	} {
		if got := stateOf(j); got != want {
			t.Errorf("%+v is %q, want %q", j, got, want)
		}
	}
}

func TestTheOrderOfAListOfJobsIsTheGateways(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		c    cronList
		want map[string]any
	}{
		{cronList{}, map[string]any{}},
		{cronList{Sort: "next", Query: "tea"}, map[string]any{"sortBy": "nextRunAtMs", "query": "tea"}},
		{cronList{Sort: "last", Only: "failing"}, map[string]any{"sortBy": "lastRunAtMs", "sortDir": "desc", "condition": "failing"}},
		{cronList{Sort: "failing", Agent: "main", Target: "telegram"}, map[string]any{"sortBy": "failing", "sortDir": "desc", "agentId": "main", "target": "telegram"}},
		{cronList{Sort: "name"}, map[string]any{"sortBy": "name"}},
	} {
		tt.want["includeDisabled"], tt.want["includeSystem"], tt.want["extended"] = false, false, true
		if got := tt.c.params(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v asks for %v, want %v", tt.c, got, tt.want)
		}
	}
}
