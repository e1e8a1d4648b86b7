package telegram_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/channel/channeltest"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

// leak searches all logs and output of this package's tests for the tokens of their bots.
var leak testtelegram.Leak

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	restore, err := leak.Streams()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	restore()
	if err := errors.Join(leak.Verdict(), goleak.Find()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestContract(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, func(t *testing.T) channeltest.Harness {
		t.Helper()
		b := newBot(t, nil)
		always := func(f testtelegram.Fault) func(bool) {
			return func(on bool) {
				b.srv.Mend()
				if on {
					b.srv.BreakAlways(f)
				}
			}
		}
		return channeltest.Harness{
			Channel: b.ch, Target: chat.Target{Channel: b.ch.Name(), ChatID: "7"},
			Say:    func(text string) { b.srv.Say(anna, anna, text) },
			Read:   func() []string { return b.srv.Texts(anna) },
			Outage: always(testtelegram.Fault{Reset: true}), Hang: always(testtelegram.Fault{Hang: true}),
		}
	})
}
