package telegram_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// TestActivationWithoutAWordOffersWhatThereIs sends /activation in a group, and presses a button of the answer.
func TestActivationWithoutAWordOffersWhatThereIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Members = "any" })
		b.srv.MakeAdmin(group, anna)
		b.start()
		last := func() testtelegram.Message {
			all := b.srv.Messages(group)
			return all[len(all)-1]
		}
		labels := func(m testtelegram.Message) string {
			var list []string
			for _, row := range m.Buttons {
				for _, button := range row {
					list = append(list, button.Text)
				}
			}
			return strings.Join(list, "|")
		}
		b.srv.Say(group, anna, "/activation")
		after(5 * time.Second)
		asked := last()
		if got := labels(asked); got != "✓ mention|always" || !strings.Contains(asked.Text, "when I am mentioned") {
			t.Fatalf("the group reads %q with the buttons %q", asked.Text, got)
		}
		b.srv.Press(group, bob, asked.ID, asked.Buttons[0][1].Data) // it is for Anna
		after(5 * time.Second)
		b.srv.Say(group, bob, "not addressed")
		after(5 * time.Second)
		wantTexts(t, "received", b.texts())
		b.srv.Press(group, anna, asked.ID, asked.Buttons[0][1].Data)
		after(5 * time.Second)
		if got := last().Text; !strings.Contains(got, "From now on I answer every message") {
			t.Errorf("the group reads %q", got)
		}
		b.srv.Say(group, bob, "now I hear everything")
		after(5 * time.Second)
		wantTexts(t, "received", b.texts(), "now I hear everything")
		b.srv.Say(group, anna, "/activation")
		after(5 * time.Second)
		if got := labels(last()); got != "mention|✓ always" {
			t.Errorf("afterwards the buttons are %q", got)
		}
		b.srv.Say(group, anna, "/activation perhaps")
		after(5 * time.Second)
		if got := last().Text; got != "Say /activation always or /activation mention." {
			t.Errorf("to a word that is none: %q", got)
		}
		b.stop()
	})
}
