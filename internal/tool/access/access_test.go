package access_test

import (
	"context"
	"errors"
	"strings"
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
	if first.Token == second.Token || !strings.HasPrefix(first.Token, access.Prefix) || first.URL != "http://127.0.0.1:1/mcp" {
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

// numbered is a distinguishable toolbox.
type numbered struct {
	box

	n int
}

// TestTheTokenOfAKeptProgramOpensTheTurnThatRuns checks that a session has one token, which gives
// no access between turns.
func TestTheTokenOfAKeptProgramOpensTheTurnThatRuns(t *testing.T) {
	t.Parallel()
	turns := access.New("http://127.0.0.1:1/mcp")
	opened := func(token string) int {
		t.Helper()
		got, _, leave, ok := turns.Enter(t.Context(), token)
		if !ok {
			return 0
		}
		defer leave()
		one, isNumbered := got.(numbered)
		if !isNumbered {
			t.Fatalf("opened %T", got)
		}
		return one.n
	}
	first, end := turns.OpenKept(t.Context(), "agent:main:a", numbered{n: 1})
	other, endOther := turns.OpenKept(t.Context(), "agent:main:b", numbered{n: 9})
	defer endOther()
	if first.Token == other.Token || !strings.HasPrefix(first.Token, access.Prefix) || opened(first.Token) != 1 || opened(other.Token) != 9 {
		t.Fatalf("got %+v and %+v", first, other)
	}
	end()
	if got := opened(first.Token); got != 0 {
		t.Errorf("between turns %d is opened", got)
	}
	second, endSecond := turns.OpenKept(t.Context(), "agent:main:a", numbered{n: 2})
	end() // a repeated end does not end the later turn
	if second.Token != first.Token || opened(second.Token) != 2 {
		t.Errorf("got %+v, which opens %d", second, opened(second.Token))
	}
	endSecond()
	elsewhere, endElsewhere := access.New("").OpenKept(t.Context(), "agent:main:a", box{})
	defer endElsewhere()
	if elsewhere.Token == first.Token {
		t.Error("another process has the same token")
	}
}
