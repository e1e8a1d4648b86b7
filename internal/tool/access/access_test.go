package access_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/tool/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type box struct{ agent.Toolbox }

func (box) Call(context.Context, string, chat.ToolCall) chat.ToolResult { return chat.ToolResult{} }

func TestATokenEndsWithItsTurn(t *testing.T) {
	t.Parallel()
	turns := access.New("http://127.0.0.1:1/mcp")
	first, end := turns.Open(t.Context(), box{})
	second, endSecond := turns.Open(t.Context(), box{})
	defer endSecond()
	if first.Token == second.Token || !access.IsTurn(first.Token) || first.URL != "http://127.0.0.1:1/mcp" {
		t.Fatalf("got %+v and %+v", first, second)
	}
	_, _, leave, ok := turns.Enter(t.Context(), first.Token)
	if !ok {
		t.Fatal("the token of a running turn is refused")
	}
	leave()
	end()
	for _, token := range []string{first.Token, "", access.Prefix, second.Token + "x"} {
		if _, _, _, ok := turns.Enter(t.Context(), token); ok {
			t.Errorf("%q is taken", token)
		}
	}
	if _, _, leave, ok := turns.Enter(t.Context(), second.Token); !ok {
		t.Error("the token of another turn ended, too")
	} else {
		leave()
	}
}

func TestTheEndCancelsCallsAndWaitsForThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := access.New("")
		given, end := turns.Open(t.Context(), box{})
		_, ctx, leave, ok := turns.Enter(t.Context(), given.Token)
		if !ok {
			t.Fatal("refused")
		}
		began := time.Now()
		go func() {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), access.ErrEnded) {
				t.Errorf("the call ended with %v", context.Cause(ctx))
			}
			time.Sleep(time.Second)
			leave()
		}()
		end()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the end took %s, want it to wait for the call", took)
		}
	})
}
