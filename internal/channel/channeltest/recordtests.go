package channeltest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"laneway/internal/channel"
)

// RunRecords tests the contract of [channel.Records]. open makes an empty store and a function that moves its clock forward.
func RunRecords(t *testing.T, open func(t *testing.T) (r channel.Records, forward func(time.Duration))) {
	t.Helper()
	runPairings(t, open)
	for _, c := range []struct {
		name string
		test func(t *testing.T, r channel.Records, forward func(time.Duration))
	}{
		{"a group keeps what was chosen for it", groupKeepsChoice},
		{"a group that moves takes its choice along", groupMoves},
		{"one button of a message works once", buttonOnce},
		{"a repeated press returns the same text", buttonAgain},
		{"a button is for one person in one chat of one bot", buttonBound},
		{"a button ends after its time", buttonEnds},
		{"a bot has a bounded number of buttons", buttonsBounded},
		{"of many presses at once one counts", buttonRace},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, forward := open(t)
			c.test(t, r, forward)
		})
	}
}

const (
	oneBot = "telegram:1"
	forum  = int64(-1009007199254740993) // beyond 2^53, negative
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantChoice(t *testing.T, r channel.Records, bot string, chatID int64, want string) {
	t.Helper()
	if got, err := r.GroupActivation(t.Context(), bot, chatID); err != nil || got != want {
		t.Errorf("the choice for %s %d is %q, %v; want %q", bot, chatID, got, err, want)
	}
}

func groupKeepsChoice(t *testing.T, r channel.Records, _ func(time.Duration)) {
	t.Helper()
	wantChoice(t, r, oneBot, forum, "")
	for _, choice := range []string{"always", "mention"} {
		must(t, r.SetGroupActivation(t.Context(), oneBot, forum, choice))
		wantChoice(t, r, oneBot, forum, choice)
	}
	wantChoice(t, r, "telegram:2", forum, "")
	wantChoice(t, r, oneBot, forum+1, "")
}

func groupMoves(t *testing.T, r channel.Records, _ func(time.Duration)) {
	t.Helper()
	before := func(chatID, want int64) {
		t.Helper()
		if got, err := r.GroupBefore(t.Context(), oneBot, chatID); err != nil || got != want {
			t.Errorf("%d was %d, %v; want %d", chatID, got, err, want)
		}
	}
	before(forum, 0)
	must(t, r.SetGroupActivation(t.Context(), oneBot, -5, "always"))
	for range 2 {
		must(t, r.MoveGroup(t.Context(), oneBot, -5, forum))
		before(forum, -5)
		before(-5, 0)
		wantChoice(t, r, oneBot, forum, "always")
	}
	must(t, r.SetGroupActivation(t.Context(), oneBot, forum, "mention"))
	must(t, r.MoveGroup(t.Context(), oneBot, -5, forum))
	wantChoice(t, r, oneBot, forum, "mention") // what was chosen later stays
	before(forum, -5)
}

func buttons(of channel.Peer, ids ...string) channel.ButtonSet {
	set := channel.ButtonSet{Peer: of, Texts: map[string]string{}}
	for _, id := range ids {
		set.Texts[id] = "/say " + id
	}
	return set
}

// press is a press of a button with the provider's number for it.
type press struct {
	number int64
	button string
}

// wantPress presses a button that [buttons] made; with a nil fault, it must return the text of the button.
func wantPress(t *testing.T, r channel.Records, p press, by channel.Peer, fault error) {
	t.Helper()
	if got, err := r.TakeButton(t.Context(), p.button, by, p.number); !errors.Is(err, fault) || (fault == nil && got != "/say "+p.button) {
		t.Errorf("button %s pressed by %+v: %q, %v; want the error %v", p.button, by, got, err, fault)
	}
}

func buttonOnce(t *testing.T, r channel.Records, _ func(time.Duration)) {
	t.Helper()
	anna := peer(oneBot, 7)
	must(t, r.PutButtons(t.Context(), buttons(anna, "a", "b")))
	must(t, r.PutButtons(t.Context(), buttons(anna, "c")))
	wantPress(t, r, press{1, "b"}, anna, nil)
	wantPress(t, r, press{2, "b"}, anna, channel.ErrButtonUnknown)
	wantPress(t, r, press{3, "a"}, anna, channel.ErrButtonUnknown) // the other button of the same message
	wantPress(t, r, press{4, "c"}, anna, nil)
	wantPress(t, r, press{5, "never"}, anna, channel.ErrButtonUnknown)
}

func buttonAgain(t *testing.T, r channel.Records, forward func(time.Duration)) {
	t.Helper()
	anna := peer(oneBot, 7)
	must(t, r.PutButtons(t.Context(), buttons(anna, "a", "b")))
	wantPress(t, r, press{1, "a"}, anna, nil)
	wantPress(t, r, press{1, "a"}, anna, nil) // the same press, delivered again
	wantPress(t, r, press{2, "a"}, anna, channel.ErrButtonUnknown)
	wantPress(t, r, press{1, "b"}, anna, channel.ErrButtonUnknown)
	wantPress(t, r, press{1, "a"}, peer(oneBot, 8), channel.ErrButtonNotYours)
	wantPress(t, r, press{1, "a"}, anna, nil)
	forward(channel.ButtonLife)
	wantPress(t, r, press{1, "a"}, anna, channel.ErrButtonUnknown)
}

func buttonBound(t *testing.T, r channel.Records, _ func(time.Duration)) {
	t.Helper()
	anna := channel.Peer{Channel: oneBot, UserID: 7, ChatID: forum}
	must(t, r.PutButtons(t.Context(), buttons(anna, "hers")))
	must(t, r.PutButtons(t.Context(), buttons(channel.Peer{Channel: oneBot, ChatID: forum}, "for all")))
	for _, other := range []channel.Peer{
		{Channel: oneBot, UserID: 8, ChatID: forum}, {Channel: oneBot, UserID: 7, ChatID: 7}, {Channel: "telegram:2", UserID: 7, ChatID: forum},
	} {
		wantPress(t, r, press{6, "hers"}, other, channel.ErrButtonNotYours)
	}
	wantPress(t, r, press{7, "for all"}, channel.Peer{Channel: oneBot, UserID: 8, ChatID: 8}, channel.ErrButtonNotYours)
	wantPress(t, r, press{8, "for all"}, channel.Peer{Channel: oneBot, UserID: 8, ChatID: forum}, nil)
	wantPress(t, r, press{9, "hers"}, anna, nil)
}

func buttonEnds(t *testing.T, r channel.Records, forward func(time.Duration)) {
	t.Helper()
	anna := peer(oneBot, 7)
	must(t, r.PutButtons(t.Context(), buttons(anna, "a")))
	must(t, r.PutButtons(t.Context(), buttons(anna, "b")))
	forward(channel.ButtonLife - time.Millisecond)
	wantPress(t, r, press{10, "a"}, anna, nil)
	forward(time.Millisecond)
	wantPress(t, r, press{11, "b"}, anna, channel.ErrButtonUnknown)
}

func buttonsBounded(t *testing.T, r channel.Records, forward func(time.Duration)) {
	t.Helper()
	const perSet = 500
	fill := func(bot string, set int) error {
		var ids []string
		for i := range perSet {
			ids = append(ids, fmt.Sprintf("%s-%d-%d", bot, set, i))
		}
		return r.PutButtons(t.Context(), buttons(peer(bot, 7), ids...))
	}
	for i := range channel.MaxButtons / perSet {
		must(t, fill(oneBot, i))
	}
	if err := r.PutButtons(t.Context(), buttons(peer(oneBot, 8), "one more")); !errors.Is(err, channel.ErrButtonsFull) {
		t.Errorf("one more: %v", err)
	}
	wantPress(t, r, press{12, "one more"}, peer(oneBot, 8), channel.ErrButtonUnknown)
	must(t, r.PutButtons(t.Context(), buttons(peer("telegram:2", 7), "another bot's")))
	forward(channel.ButtonLife)
	must(t, r.PutButtons(t.Context(), buttons(peer(oneBot, 8), "after a while")))
}

func buttonRace(t *testing.T, r channel.Records, _ func(time.Duration)) {
	t.Helper()
	anna := peer(oneBot, 7)
	must(t, r.PutButtons(t.Context(), buttons(anna, "a", "b")))
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		taken int
	)
	for i := range 20 {
		wg.Go(func() {
			if _, err := r.TakeButton(t.Context(), []string{"a", "b"}[i%2], anna, int64(i+1)); err == nil {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if taken != 1 {
		t.Errorf("%d of 20 presses counted", taken)
	}
}
