package telegram_test

import (
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/channel/channeltest"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
