package telegram

import (
	"testing"
	"testing/synctest"
	"time"
)

// When the map of chats is full, entries without a cooldown make space for new chats, and a running cooldown stays.
func TestACooldownOutlivesAFullMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		l.cool(1, time.Hour)
		for id := int64(2); id < 2*maxChats; id++ {
			l.spare(id, false)
		}
		if d := l.cooldown(1); d != time.Hour {
			t.Errorf("the cooldown is %s, want 1h", d)
		}
		if n := len(l.chats); n > maxChats {
			t.Errorf("%d chats are remembered, the bound is %d", n, maxChats)
		}
		for id := int64(2); id < 2*maxChats; id++ {
			l.cool(id, time.Minute)
		}
		if n := len(l.chats); n > maxChats {
			t.Errorf("%d cooldowns are remembered, the bound is %d", n, maxChats)
		}
	})
}

// A cooldown of the bot applies to calls for every chat and for no chat; a cooldown of a chat applies to its calls alone. The longer one counts.
func TestCooldowns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		want := func(chat int64, d time.Duration) {
			t.Helper()
			if got := l.cooldown(chat); got != d {
				t.Errorf("the cooldown for %d is %s, want %s", chat, got, d)
			}
		}
		l.cool(1, 30*time.Second)
		l.cool(1, 10*time.Second)
		want(1, 30*time.Second)
		want(2, 0)
		want(anyChat, 0)
		l.cool(anyChat, 20*time.Second)
		want(1, 30*time.Second)
		want(2, 20*time.Second)
		want(anyChat, 20*time.Second)
		if l.spare(2, false) {
			t.Error("a sign goes out during the cooldown of the bot")
		}
		if delay, global := l.try(2); delay != 20*time.Second || !global {
			t.Errorf("a message waits %s, global = %v", delay, global)
		}
		time.Sleep(30 * time.Second)
		want(1, 0)
		if delay, _ := l.try(1); delay != 0 {
			t.Errorf("after the cooldown a message waits %s", delay)
		}
	})
}
