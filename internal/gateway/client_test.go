package gateway_test

import (
	"context"
	"errors"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/client"
)

// The Go client works with the gateway.
func TestGoClientTalksToTheGateway(t *testing.T) {
	t.Parallel()
	b := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{URL: "http://" + b.addr, Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var health struct {
		OK       bool
		Problems []string
	}
	if err := c.Call(ctx, "health", nil, &health); err != nil || !health.OK || health.Problems == nil {
		t.Errorf("health: %v %+v, want the extended view", err, health)
	}
	var last struct {
		Result struct{ Payloads []struct{ Text string } }
	}
	err = c.CallTwice(ctx, client.TwoAnswers{
		Method: "agent", Params: params{"message": "good day", "idempotencyKey": "k"}, Last: &last,
	})
	if err != nil || last.Result.Payloads[0].Text != "good day" {
		t.Errorf("agent: %v %+v", err, last)
	}
	for ev := range c.Events() {
		if ev.Gap {
			t.Errorf("gap before %s", ev.Name)
		}
		if chatState("k", "final")(frame{Event: ev.Name, Payload: ev.Payload}) {
			break
		}
	}
	b.srv.Drain()
	if _, err := client.Dial(ctx, client.Options{URL: "ws://" + b.addr, Token: adminToken}); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("a gateway that drains: %v", err)
	}
	var refused *client.Error
	if err := c.Call(ctx, "nope", nil, nil); !errors.As(err, &refused) || refused.Message != "unknown method: nope" {
		t.Errorf("unknown method: %v", err)
	}
	if _, err := client.Dial(ctx, client.Options{URL: "ws://" + b.addr, Token: "wrong", Scopes: []string{chat.ScopeRead}}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("wrong token: %v", err)
	}
}
