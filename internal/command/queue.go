package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/chat"
)

// QueueReport is a session's queue.
type QueueReport struct {
	Mode             chat.QueueMode
	Running, Waiting int
	Cap              int
	Lane             string
}

func runQueue(ctx context.Context, a Actions, c Call) (Answer, error) {
	switch arg := strings.ToLower(c.Args); arg {
	case "":
		return showQueue(ctx, a, c)
	case "clear":
		n, err := a.ClearQueue(ctx, c)
		if err != nil {
			return Answer{}, err
		}
		return Answer{Text: "Removed " + count(n, "waiting message") + "."}, nil
	case "default":
		return Answer{Text: "Back to the default mode."}, a.SetMode(ctx, c, "")
	default:
		if !slices.Contains(chat.QueueModes(), chat.QueueMode(arg)) {
			return Answer{}, chat.Errorf(chat.CodeInvalid, "I do not know the queue mode %q; use queue, followup, interrupt, collect, steer, default or clear", chat.Cut(arg, 40))
		}
		return Answer{Text: "From now on messages here use the mode " + arg + "."}, a.SetMode(ctx, c, chat.QueueMode(arg))
	}
}

// showQueue describes the queue and offers the modes; the current mode is marked.
func showQueue(ctx context.Context, a Actions, c Call) (Answer, error) {
	q, err := a.Queue(ctx, c)
	if err != nil {
		return Answer{}, err
	}
	choice := &chat.Choice{Typed: "Write /queue queue, followup, interrupt, collect, steer or default to choose what happens to messages that arrive during a turn."}
	var modes []chat.Button
	for _, m := range chat.QueueModes() {
		label := string(m)
		if m == q.Mode {
			label = "✓ " + label
		}
		modes = append(modes, chat.Button{Label: label, Text: "/queue " + string(m)})
	}
	modes = append(modes, chat.Button{Label: "default", Text: "/queue default"})
	choice.Rows = slices.Collect(slices.Chunk(modes, 3))
	if q.Waiting > 0 {
		choice.Rows = append(choice.Rows, []chat.Button{{Label: "Remove " + count(q.Waiting, "waiting message"), Text: "/queue clear"}})
		choice.Typed += " Write /queue clear to remove what waits."
	}
	text := fmt.Sprintf("Mode %s, %s, %s of at most %d, lane %s.",
		q.Mode, count(q.Running, "running turn"), count(q.Waiting, "waiting message"), q.Cap, q.Lane)
	return Answer{Text: text, Choice: choice}, nil
}
