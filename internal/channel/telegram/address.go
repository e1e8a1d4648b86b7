package telegram

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// general is the topic of a forum that a message without a topic belongs to.
const general = 1

// address is a chat and one of its topics; 0 if none.
type address struct {
	chat   int64
	thread int
}

func (a address) group() bool { return a.chat < 0 }

// addresses translates between targets of the gateway and addresses of Telegram. It follows groups whose id has changed: Telegram refuses
// calls for the old id. It is safe for concurrent use; the lock is not held while the store is called.
type addresses struct {
	name   string // of the channel
	groups channel.Groups
	log    *slog.Logger

	mu    sync.Mutex
	moved map[int64]int64 // new id by old id, as far as this process knows
}

// address parses a target of this bot and follows its group.
func (a *addresses) address(to chat.Target) (address, error) {
	if to.Channel != a.name {
		return address{}, fmt.Errorf("%q is not the channel %s", to.Channel, a.name)
	}
	id, err := strconv.ParseInt(to.ChatID, 10, 64)
	if err != nil || id == 0 {
		return address{}, fmt.Errorf("%q is not the id of a chat", chat.Cut(to.ChatID, 40))
	}
	out := address{chat: a.follow(id)}
	if to.Thread != "" {
		if out.thread, err = strconv.Atoi(to.Thread); err != nil || out.thread < 0 {
			return address{}, fmt.Errorf("%q is not the id of a topic", chat.Cut(to.Thread, 40))
		}
	}
	if out.thread == general {
		out.thread = 0
	}
	return out, nil
}

// sessionOf returns the session of an agent at an address.
func sessionOf(agent string, at address) chat.SessionKey {
	kind, thread := chat.KindDirect, ""
	if at.group() {
		kind = chat.KindGroup
	}
	if at.thread != 0 {
		thread = strconv.Itoa(at.thread)
	}
	return chat.PeerKey(agent, "telegram", kind, strconv.FormatInt(at.chat, 10), thread)
}

// target returns an address in the form that the gateway uses.
func (a *addresses) target(of address) chat.Target {
	t := chat.Target{Channel: a.name, ChatID: strconv.FormatInt(of.chat, 10)}
	if of.thread != 0 {
		t.Thread = strconv.Itoa(of.thread)
	}
	return t
}

// follow returns the current id of a chat.
func (a *addresses) follow(id int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range 4 { // a group can move more than once; the bound ends a cycle of wrong entries
		next, ok := a.moved[id]
		if !ok {
			break
		}
		id = next
	}
	return id
}

// move records that a group has a new id; equal or zero ids change nothing. After an error of the store nothing is recorded here either: the same
// update, or the next message to the old id, shows the move again.
func (a *addresses) move(ctx context.Context, from, to int64) error {
	if from == 0 || to == 0 || from == to {
		return nil
	}
	a.mu.Lock()
	known := a.moved[from] == to
	a.mu.Unlock()
	if known {
		return nil
	}
	if err := a.groups.MoveGroup(ctx, a.name, from, to); err != nil {
		return fmt.Errorf("recording the new id of a group: %w", err)
	}
	a.log.WarnContext(ctx, "a group became a supergroup; put the new id into the list of groups", "old_chat", from, "new_chat", to)
	a.mu.Lock()
	a.moved[from] = to
	a.mu.Unlock()
	return nil
}
