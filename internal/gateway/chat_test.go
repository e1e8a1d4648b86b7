package gateway_test

import (
	"testing"
)

func TestSendStreamsAnswerBehindItsResponse(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	s.request("10", "chat.send", params{"sessionKey": "agent:main:main", "message": "hello there", "idempotencyKey": "run-1"})
	first := s.read()
	if first.Type != "res" || first.ID != "10" || !first.OK {
		t.Fatalf("first frame is %+v %+v, want the response", first, first.Error)
	}
	got := decode[map[string]any](t, first.Payload)
	if got["runId"] != "run-1" || got["status"] != "started" || len(got) != 2 {
		t.Errorf("result %v, want exactly runId run-1 and status started", got)
	}
	final := s.next(chatState("run-1", "final"))
	p := decode[struct {
		Message struct {
			Role    string
			Content []struct{ Type, Text string }
		}
		StopReason string
	}](t, final.Payload)
	if p.StopReason != "stop" || p.Message.Role != "assistant" || p.Message.Content[0].Text != "hello there" {
		t.Errorf("final %s", final.Payload)
	}
}
