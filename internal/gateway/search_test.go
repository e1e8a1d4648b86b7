package gateway_test

import (
	"strconv"
	"strings"
	"testing"
)

func TestSessionsSearch(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	for i := range 3 {
		id := "m" + strconv.Itoa(i)
		s.must("chat.send", send("main", "needle "+strings.Repeat("hay ", 200)+id, id))
		s.next(chatState(id, "final"))
	}
	got := s.must("sessions.search", params{"query": "NEEDLE m1", "maxChars": 30})
	hits := got["hits"].([]any)
	if len(hits) == 0 || got["count"] != float64(len(hits)) || got["hasMore"] != false || got["nextUntilMs"] != nil {
		t.Fatalf("the search found %v", got)
	}
	hit := hits[len(hits)-1].(params)
	excerpt := hit["excerpt"].(string)
	if hit["sessionKey"] != "agent:main:main" || hit["agentId"] != "main" || hit["role"] != "user" || hit["messageId"] != "m-"+strconv.Itoa(int(hit["seq"].(float64))) ||
		!strings.HasPrefix(excerpt, "needle hay") || len(excerpt) > 40 || hit["timestamp"] == 0.0 {
		t.Errorf("the hit is %v", hit)
	}
	limited := s.must("sessions.search", params{"query": "needle", "limit": 1})
	if limited["count"] != 1.0 || limited["hasMore"] != true || limited["nextUntilMs"] != limited["hits"].([]any)[0].(params)["timestamp"] {
		t.Errorf("a limited search found %v", limited)
	}
	if got := s.must("sessions.search", params{"query": "needle", "untilMs": 1}); got["count"] != 0.0 {
		t.Errorf("before 1970 there is %v", got)
	}
	for query, want := range map[string]string{
		"?!":                                    "the query has no word",
		strings.Repeat("a ", 3) + manyWords(17): "too many words",
	} {
		if f := s.call("sessions.search", params{"query": query}); f.OK || f.Error.Code != "INVALID_REQUEST" || !strings.Contains(f.Error.Message, want) {
			t.Errorf("%q: got %s %+v, want %q", query, f.Payload, f.Error, want)
		}
	}
}

func manyWords(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(" word" + strconv.Itoa(i))
	}
	return text.String()
}
