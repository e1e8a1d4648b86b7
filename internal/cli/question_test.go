package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/wire"
)

func TestAQuestionIsAMenu(t *testing.T) {
	t.Parallel()
	const head = "The agent main wants to do this for you: run the command “ls” in the directory “/srv”\nAllow it?"
	event := func(state wire.ChatState, text string) wire.ChatEvent {
		return wire.ChatEvent{State: state, Message: &wire.ChatMessage{Content: []wire.TextPart{{Type: "text", Text: text}}}}
	}
	q, ok := questionOf(event(wire.ChatFinal, head+"\nWrite /answer 0123456789ab 1 (Allow: once), /answer 0123456789ab 2 (Allow always) or /deny 0123456789ab within 5m."))
	want := []questionOption{{"/answer 0123456789ab 1", "Allow: once"}, {"/answer 0123456789ab 2", "Allow always"}, {"/deny 0123456789ab", "Deny"}}
	if diff := cmp.Diff(want, q.options, cmp.AllowUnexported(questionOption{})); !ok || diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if got := q.menu(); got != head+"\n  1  Allow: once\n  2  Allow always\n  3  Deny" {
		t.Errorf("menu %q", got)
	}
	for line, want := range map[string]string{"2": "/answer 0123456789ab 2", "3": "/deny 0123456789ab", "0": "0", "4": "4", "two": "two"} {
		if got := q.command(line); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
	for _, other := range []wire.ChatEvent{
		event(wire.ChatDelta, head+"\nWrite /allow 0123456789ab or /deny 0123456789ab within 5m."),
		event(wire.ChatFinal, "You may write /allow 0123456789ab."), event(wire.ChatFinal, head+"\nWrite a poem."),
		{State: wire.ChatFinal},
	} {
		if q, ok := questionOf(other); ok {
			t.Errorf("%+v is a question: %+v", other, q)
		}
	}
}
