package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/wire"
)

// While the gateway is unavailable, the client shows that and handles keys; the conversation continues by itself.
func TestALostConnectionIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		b.gateway.questions = nil
		talk := &conversation{session: "main", dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		typing.lines <- "cut"
		synctest.Wait()
		time.Sleep(firstRedial * 2)
		synctest.Wait()
		if got := typing.String(); !strings.Contains(got, "laneway: the gateway is away; connecting again (Ctrl-C leaves)\nlaneway: connected again\n") {
			t.Errorf("the screen shows %q", got)
		}
		b.gateway.mu.Lock()
		b.gateway.refuse = errors.New("no program listens")
		b.gateway.mu.Unlock()
		typing.lines <- "cut"
		synctest.Wait()
		typing.pressed <- struct{}{}
		if err := <-ended; err != nil {
			t.Errorf("Ctrl-C while the gateway is away: %v", err)
		}
		close(typing.lines)
		talk.close()
	})
}

// Ctrl-D ends the input; the answer that is being written is shown completely.
func TestCtrlDWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		talk := &conversation{session: "main", dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		typing.lines <- "hang"
		synctest.Wait()
		close(typing.lines)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it left before the end of the answer: %v", err)
		default:
		}
		typing.pressed <- struct{}{} // the answer does not end: stop it
		if err := <-ended; err != nil || !strings.Contains(typing.String(), "Stopped.") {
			t.Errorf("%v, the screen shows %q", err, typing.String())
		}
		talk.close()
	})
}

// converse runs a conversation on a terminal in a bubble: do types and lets things happen, and synctest.Wait settles the screen.
func converse(t *testing.T, do func(b *bench, typing *keys)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		b.gateway.questions = nil
		talk := &conversation{session: "main", follows: true, dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		if err := loop.greet(t.Context(), "", 0); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		do(b, typing)
		close(typing.lines)
		b.gateway.release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		talk.close()
	})
}

// settle waits until the screen shows what has happened.
func settle() {
	time.Sleep(2 * newsDelay)
	synctest.Wait()
}

// Before, the command line never subscribed to the session: nothing was shown until the next start.
func TestChatShowsWhatOthersWriteAtOnce(t *testing.T) {
	t.Parallel()
	converse(t, func(b *bench, typing *keys) {
		b.gateway.others("assistant", "The digest: \x1b[31mall green.")
		settle()
		if got, want := typing.String(), "assistant: The digest: \\u001b[31mall green.\n"; got != want {
			t.Errorf("the screen shows %q, want %q", got, want)
		}
		typing.lines <- "hang"
		settle()
		b.gateway.others("user", "and from the phone?")
		settle()
		if got, want := typing.String(), "all green.\nha\nuser: and from the phone?\n"; !strings.HasSuffix(got, want) {
			t.Errorf("the screen shows %q, want %q at the end", got, want)
		}
		b.gateway.release()
		settle()
		if got := typing.String(); !strings.HasSuffix(got, "phone?\nng\n") {
			t.Errorf("the rest of the answer is not shown alone: %q", got)
		}
	})
}

func TestACommandDoesNotReprintTheStreamedAnswer(t *testing.T) {
	t.Parallel()
	converse(t, func(b *bench, typing *keys) {
		typing.lines <- "hang"
		settle()
		typing.lines <- "/status"
		settle()
		b.gateway.release()
		settle()
		if got := typing.String(); got != "ha\n/status\nng\n" {
			t.Errorf("the screen shows %q", got)
		}
	})
}

func TestSeveralStoppedAnswersAreOneSentence(t *testing.T) {
	t.Parallel()
	converse(t, func(b *bench, typing *keys) {
		for range 4 {
			typing.lines <- "hang"
			synctest.Wait()
		}
		b.gateway.mu.Lock()
		b.gateway.conn.abort(wire.ChatAbortParams{})
		b.gateway.mu.Unlock()
		settle()
		if got := strings.Count(typing.String(), "Stopped."); got != 1 || strings.Contains(typing.String(), "stopped:") {
			t.Errorf("said %d times: %q", got, typing.String())
		}
	})
}

func TestAQuestionInChatIsAnswered(t *testing.T) {
	t.Parallel()
	const asks = "The agent main wants to do this for you: run \\u001b[31mls\nAllow it?\n  1  Allow\n  2  Deny\nWrite the number of an answer.\n"
	for _, line := range []string{"1", "yes", "allow"} {
		converse(t, func(b *bench, typing *keys) {
			b.gateway.ask("asked", mayIRun("q-1"))
			b.gateway.others("assistant", "The agent main wants to do this for you: run ls\nAllow it?\nWrite /allow q-1 or /deny q-1 within 5m.")
			settle()
			typing.lines <- line
			settle()
			if got, want := typing.String(), asks+"The answer is: \\u001b[31mAllow.\n"; got != want || strings.Join(b.gateway.answers, "") != "q-1 1" {
				t.Errorf("answers %q, the screen shows %q, want %q", b.gateway.answers, got, want)
			}
		})
	}
	converse(t, func(b *bench, typing *keys) {
		b.gateway.ask("asked", mayIRun("q-1"))
		settle()
		b.gateway.ask("answered")
		settle()
		typing.lines <- "1"
		settle()
		if got, want := typing.String(), asks+"The question was answered elsewhere.\n1\n"; got != want || len(b.gateway.answers) != 0 {
			t.Errorf("answers %q, the screen shows %q, want %q", b.gateway.answers, got, want)
		}
	})
}
