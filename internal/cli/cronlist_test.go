package cli

import (
	"reflect"
	"testing"
)

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
