package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// While the gateway is unavailable, the client shows that and handles keys; the conversation continues by itself.
func TestALostConnectionIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		talk := &conversation{session: "main", dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := &chatLoop{talk: talk, env: b.env, screen: typing, interactive: true}
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
		loop := &chatLoop{talk: talk, env: b.env, screen: typing, interactive: true}
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
		if err := <-ended; err != nil || !strings.Contains(typing.String(), "stopped: stop") {
			t.Errorf("%v, the screen shows %q", err, typing.String())
		}
		talk.close()
	})
}
