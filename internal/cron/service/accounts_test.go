package service_test

import (
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// elsewhere makes another process serve bots that this one does not have.
func (p *process) elsewhere(names ...string) {
	p.t.Helper()
	for _, name := range names {
		if _, ok, err := p.store.AcquireLease(p.t.Context(), name, "node"); err != nil || !ok {
			p.t.Fatalf("acquiring %s: %v, %v", name, ok, err)
		}
	}
}

func toTelegram(account string) map[string]any {
	delivery := map[string]any{"mode": "announce", "channel": "telegram", "to": "7"}
	if account != "" {
		delivery["accountId"] = account
	}
	return map[string]any{"delivery": delivery}
}

// The process that creates and launches the run has no bot: the address gets the account that the store has.
func TestARunOfAProcessWithoutTheChannelHasAnAddressWithItsAccount(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.elsewhere("telegram:123", "other:1")
	j := p.add(toTelegram(""))
	if _, reason, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil); err != nil || reason != "" {
		t.Fatalf("%q, %v", reason, err)
	}
	equal(t, "address", p.launched[0].Message.Content.Options.ReplyTo, chat.Target{Channel: "telegram:123", ChatID: "7"})
}

func TestAJobThatCouldMeanSeveralAccountsIsRefused(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.elsewhere("telegram:123", "telegram:456")
	_, err := p.Editor.Add(t.Context(), members(t, toTelegram("")), operator, nil)
	if err == nil || !strings.Contains(err.Error(), "telegram:123, telegram:456") {
		t.Errorf("without an account: %v", err)
	}
	j := p.add(toTelegram("456"))
	if _, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil); err != nil {
		t.Fatal(err)
	}
	equal(t, "address", p.launched[0].Message.Content.Options.ReplyTo, chat.Target{Channel: "telegram:456", ChatID: "7"})
}

// Without a known bot, an answer would wait forever under an address that no process serves.
func TestAnAnswerWithoutAKnownAccountIsNotSent(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(toTelegram(""))
	id, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := p.launched[0].Message.Content.Options.ReplyTo
	if why := p.Attempt(cron.Channel, id).HeldBack(to); !strings.Contains(why, "no account of telegram is known") {
		t.Errorf("to %v it is held back because %q", to, why)
	}
}
