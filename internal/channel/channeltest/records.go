package channeltest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// runPairings is the part of the contract that is about pairings.
func runPairings(t *testing.T, open func(t *testing.T) (r channel.Records, forward func(time.Duration))) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(t *testing.T, p channel.Records, forward func(time.Duration))
	}{
		{"a code lets exactly its peer in", pairingLetsIn},
		{"a code works once and for an hour", pairingOnce},
		{"bounds per chat and bot", pairingBounds},
		{"many approvals at once let one through", pairingRace},
		{"dismissed and revoked", pairingTakenBack},
		{"codes are forgiving to read and hard to guess", pairingCodes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, forward := open(t)
			c.test(t, p, forward)
		})
	}
}

// by is the operator who makes the changes in these tests.
var by = chat.ChangedBy{Who: "operator", Peer: "192.0.2.1", RequestID: "q1"} //nolint:gochecknoglobals // a constant that Go has no word for

func code(c string) channel.PairingRef { return channel.PairingRef{Code: c} }

func peer(bot string, n int64) channel.Peer { return channel.Peer{Channel: bot, UserID: n, ChatID: n} }

func create(t *testing.T, p channel.Records, who channel.Peer) channel.Pairing {
	t.Helper()
	made, err := p.CreatePairing(t.Context(), who, "Anna")
	if err != nil {
		t.Fatalf("making a code: %v", err)
	}
	return made
}

func wantAllowed(t *testing.T, p channel.Records, who channel.Peer, want bool) {
	t.Helper()
	got, err := p.Paired(t.Context(), who)
	if err != nil || got != want {
		t.Errorf("allowed(%+v) = %v, %v; want %v", who, got, err, want)
	}
}

func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, channel.ErrPairingUnknown) {
		t.Errorf("got %v, want %v", err, channel.ErrPairingUnknown)
	}
}

func pairingLetsIn(t *testing.T, p channel.Records, _ func(time.Duration)) {
	t.Helper()
	anna := peer("telegram:1", 7)
	made := create(t, p, anna)
	if again := create(t, p, anna); again.ID != made.ID || again.Code != made.Code {
		t.Errorf("a second request of one person: %+v after %+v", again, made)
	}
	if open, err := p.OpenPairings(t.Context(), ""); err != nil || len(open) != 1 {
		t.Errorf("open requests of one person: %v, %v", open, err)
	}
	wantAllowed(t, p, anna, false)
	got, err := p.ApprovePairing(t.Context(), code(made.Code), by)
	if err != nil || got.Peer != anna || got.Name != "Anna" {
		t.Fatalf("approved %+v, %v", got, err)
	}
	wantAllowed(t, p, anna, true)
	granted, err := p.Grants(t.Context(), anna.Channel)
	if err != nil || len(granted) != 1 || granted[0].Peer != anna || granted[0].ApprovedBy != "operator" || granted[0].Name != "Anna" || granted[0].ApprovedAt.IsZero() {
		t.Errorf("granted %+v, %v", granted, err)
	}
	if granted, err := p.Grants(t.Context(), "telegram:2"); err != nil || len(granted) != 0 {
		t.Errorf("another bot's: %+v, %v", granted, err)
	}
	for _, other := range []channel.Peer{peer("telegram:2", 7), peer("telegram:1", 8), {Channel: "telegram:1", UserID: 7, ChatID: -100}, {Channel: "telegram:1", UserID: 8, ChatID: 7}} {
		wantAllowed(t, p, other, false)
	}
	if left, err := p.OpenPairings(t.Context(), ""); err != nil || len(left) != 0 {
		t.Errorf("open after the approval: %v, %v", left, err)
	}
}

func pairingOnce(t *testing.T, p channel.Records, forward func(time.Duration)) {
	t.Helper()
	first := create(t, p, peer("telegram:1", 7))
	if _, err := p.ApprovePairing(t.Context(), code(first.Code), by); err != nil {
		t.Fatal(err)
	}
	_, err := p.ApprovePairing(t.Context(), code(first.Code), by)
	wantUnknown(t, err)

	late := create(t, p, peer("telegram:1", 8))
	forward(channel.PairingLife)
	_, err = p.ApprovePairing(t.Context(), code(late.Code), by)
	wantUnknown(t, err)
	wantAllowed(t, p, peer("telegram:1", 8), false)
}

func pairingBounds(t *testing.T, p channel.Records, forward func(time.Duration)) {
	t.Helper()
	inChat := func(user int64) channel.Peer { return channel.Peer{Channel: "telegram:1", UserID: user, ChatID: 7} }
	for user := range int64(channel.MaxPairingsPerChat) {
		create(t, p, inChat(user))
	}
	if _, err := p.CreatePairing(t.Context(), inChat(99), ""); !errors.Is(err, channel.ErrPairingChatFull) {
		t.Errorf("one more code in the chat: %v", err)
	}
	made := channel.MaxPairingsPerChat
	for n := range int64(1000) {
		if _, err := p.CreatePairing(t.Context(), peer("telegram:1", 1000+n), ""); err == nil {
			made++
		} else if !errors.Is(err, channel.ErrPairingBotFull) {
			t.Fatalf("code %d: %v", n, err)
		}
	}
	if made != channel.MaxPairingsPerBot {
		t.Errorf("%d codes are open, the bound is %d", made, channel.MaxPairingsPerBot)
	}
	create(t, p, peer("telegram:2", 7)) // another bot has its own bound
	forward(channel.PairingLife)
	create(t, p, peer("telegram:1", 7))
	if left, err := p.OpenPairings(t.Context(), "telegram:1"); err != nil || len(left) != 1 {
		t.Errorf("after an hour %d codes are open (%v), want the new one", len(left), err)
	}
}

func pairingRace(t *testing.T, p channel.Records, _ func(time.Duration)) {
	t.Helper()
	made := create(t, p, peer("telegram:1", 7))
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		won int
	)
	for i := range 20 {
		ref := []channel.PairingRef{code(made.Code), {ID: made.ID}}[i%2]
		wg.Go(func() {
			if _, err := p.ApprovePairing(t.Context(), ref, by); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of 20 approvals of one code went through", won)
	}
}

func pairingTakenBack(t *testing.T, p channel.Records, _ func(time.Duration)) {
	t.Helper()
	made := create(t, p, peer("telegram:1", 7))
	if got, err := p.DismissPairing(t.Context(), channel.PairingRef{ID: made.ID}, by); err != nil || got.Peer != made.Peer {
		t.Fatalf("dismissed %+v, %v", got, err)
	}
	_, err := p.DismissPairing(t.Context(), code(made.Code), by)
	wantUnknown(t, err)
	_, err = p.ApprovePairing(t.Context(), code(made.Code), by)
	wantUnknown(t, err)
	wantAllowed(t, p, made.Peer, false)

	if _, err := p.ApprovePairing(t.Context(), code(create(t, p, made.Peer).Code), by); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if had, err := p.RevokePairing(t.Context(), made.Peer, by); err != nil || had != want {
			t.Errorf("revoke = %v, %v; want %v", had, err, want)
		}
	}
	wantAllowed(t, p, made.Peer, false)
}

func pairingCodes(t *testing.T, p channel.Records, _ func(time.Duration)) {
	t.Helper()
	made := create(t, p, peer("telegram:1", 7))
	for range 1000 {
		if _, err := p.ApprovePairing(t.Context(), code(channel.NewPairingCode()), by); !errors.Is(err, channel.ErrPairingUnknown) {
			t.Fatalf("a guess: %v", err)
		}
	}
	spoken := " " + made.Code[:4] + "-" + made.Code[4:] + " "
	if len(made.Code) != 8 {
		t.Errorf("the code %q has not 8 characters", made.Code)
	}
	if _, err := p.ApprovePairing(t.Context(), code(spoken), by); err != nil {
		t.Errorf("the code as people write it (%q): %v", spoken, err)
	}
}

// RunRecords tests the contract of [channel.Records]. open makes an empty store and a function that
// moves its clock forward.
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

// wantPress presses a button that [buttons] made; with a nil fault, it must return the text of the
// button.
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
