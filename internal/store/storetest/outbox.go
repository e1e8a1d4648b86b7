package storetest

import (
	"fmt"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// undelivered records a failed attempt to send.
func (w *world) undelivered(p store.UndeliveredParams) {
	w.Helper()
	try(w.st.Undelivered(w.ctx, p)).ok(w)
}

func outboxTests() []test {
	return []test{
		{"FinishSendsItsRowsInOrder", finishSendsInOrder},
		{"OutgoingReadsBack", outgoingReadsBack},
		{"RowsOfARunAreUnique", rowsOfARunAreUnique},
		{"RowsOutsideOfRunsAreUniqueByID", rowsOutsideOfRuns},
		{"OneMessageUnderWayPerChat", oneUnderWayPerChat},
		{"OnlyNamedChannels", onlyNamedChannels},
		{"ClaimTakesAtMostTheLimit", claimLimit},
		{"DelayIsWaitedFor", delayIsWaitedFor},
		{"UndeliveredComesAgain", undeliveredComesAgain},
		{"UnclearSendIsMarked", unclearSendIsMarked},
		{"SparedAttemptIsNotCounted", sparedAttempt},
		{"RetryHoldsBackItsChat", retryHoldsBackItsChat},
		{"PermanentFailureEnds", permanentFailureEnds},
		{"DeadNodeMayHaveSent", deadNodeMayHaveSent},
		{"CleanStopMayHaveSent", cleanStopMayHaveSent},
		{"ProgressIsKept", progressIsKept},
		{"ItsNodeSendsFirst", itsNodeSendsFirst},
		{"PreviewIsKept", previewIsKept},
		{"UnknownEndIsClosed", unknownEndIsClosed},
		{"LiveNodeKeepsItsRow", liveNodeKeepsItsRow},
		{"DeliveredNeedsTheProvidersID", deliveredNeedsID},
		{"OnlyTheSenderReports", onlyTheSenderReports},
		{"TooLateExpires", tooLateExpires},
		{"QuietHoursHoldWhatWasNotTried", quietHoursHold},
		{"QuietHoursThatEndFreeAtOnce", quietHoursEnd},
		{"LaterRunSupersedesWhatIsHeld", laterRunSupersedes},
		{"DeadNodeClaimsNothing", deadNodeClaimsNothing},
		{"LostClaimIsRepeated", lostClaimIsRepeated},
		{"UnrecordedMayHaveBeenSent", unrecordedMayHaveBeenSent},
		{"ShownTextIsAnEntryOnce", shownIsAnEntryOnce},
		{"SentMessagesAreFoundInTheirChat", sentIsFound},
		{"PartlySeenRowsEndByTheirSender", partlySeenExpires},
		{"EntryOfANewGroupHasTheFirstWriterAsOwner", shownCreatesGroups},
		{"CountsByChannel", countsByChannel},
		{"RefusedFinishSendsNothing", refusedFinishSendsNothing},
	}
}

func (w *world) outgoing(channel, chatID string) store.Outgoing {
	return store.Outgoing{
		ID: w.id("out"), Kind: store.KindNotice, Text: "text for " + chatID, Target: chat.Target{Channel: channel, ChatID: chatID},
	}
}

func (w *world) enqueue(rows ...store.Outgoing) {
	w.Helper()
	w.ok(w.st.Enqueue(w.ctx, rows))
}

func (w *world) claim(node string, channels ...string) []store.Outgoing {
	w.Helper()
	if len(channels) == 0 {
		channels = []string{"web"}
	}
	return w.claimAtMost(store.ClaimOutgoingParams{Node: node, Channels: channels, Limit: many})
}

// claimAtMost is a claim of a node that is sending what it has claimed before.
func (w *world) claimAtMost(p store.ClaimOutgoingParams) []store.Outgoing {
	w.Helper()
	p.Sending = w.sending[p.Node]
	list := try(w.st.ClaimOutgoing(w.ctx, p)).ok(w)
	if w.sending == nil {
		w.sending = map[string][]string{}
	}
	w.sending[p.Node] = append(w.sending[p.Node], outIDs(list)...)
	return list
}

// claimOne expects exactly one row.
func (w *world) claimOne(node string) store.Outgoing {
	w.Helper()
	list := w.claim(node)
	if len(list) != 1 {
		w.Fatalf("claimed %d rows, want one: %+v", len(list), list)
	}
	return list[0]
}

// counts are the counts of the channel web. The time of the oldest row is set exactly while a row
// waits.
func (w *world) counts() store.OutboxCount {
	w.Helper()
	counts := try(w.st.OutboxCounts(w.ctx)).ok(w)
	c := counts["web"]
	equal(w, "the oldest has a time", !c.Oldest.IsZero(), c.Waiting > 0)
	c.Oldest = time.Time{}
	return c
}

func outIDs(list []store.Outgoing) []string {
	var ids []string
	for _, o := range list {
		ids = append(ids, o.ID)
	}
	return ids
}

func finishSendsInOrder(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := answered(c, run)
	for n := range 3 {
		p.Outgoing = append(p.Outgoing, store.Outgoing{
			N: n, Session: key, Kind: store.KindReply, Text: fmt.Sprint("part ", n), Target: chat.Target{Channel: "web", ChatID: "1"},
			Choice: someChoice(), File: someFile(n),
		})
	}
	w.finish(p)
	finished := w.clock.now()
	w.clock.advance(time.Millisecond)
	w.enqueue(w.outgoing("web", "1"))
	for n := range 3 {
		o, want := w.claimOne(node), p.Outgoing[n]
		want.ID, want.RunID, want.Epoch, want.Count, want.Attempt, want.CreatedAt = o.ID, run, c.Epoch, 1, 1, finished
		equal(w, "row", o, want)
		try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: fmt.Sprint("provider-", n)})).ok(w)
	}
	equal(w, "the later row", w.claimOne(node).Kind, store.KindNotice)
}

func someChoice() *chat.Choice {
	return &chat.Choice{For: "7", Rows: [][]chat.Button{{{Label: "Ä \"quoted\"", Text: "/jobs"}, {Label: "b", Text: "/stop"}}, {{Label: "c", Text: "c"}}}, Typed: "Write /jobs."}
}

// someFile is a file of an answer; the first row of an answer has none.
func someFile(n int) *chat.Attachment {
	if n == 0 {
		return nil
	}
	return &chat.Attachment{Name: fmt.Sprintf("Bild %d \"ä\" 日本.png", n), MIMEType: "image/png", Path: fmt.Sprintf("outgoing/%d.png", n), Size: int64(n) << 40}
}

func outgoingReadsBack(w *world) {
	node, key := w.node(), w.key()
	o := store.Outgoing{
		ID: w.id("out"), Session: key, Principal: "ann", Kind: store.KindWebhook, Text: "äöü {\"a\": 1}", N: 0,
		Target:    chat.Target{Channel: "web", ChatID: "-100123", Thread: "t7"},
		ExpiresAt: w.clock.now().Add(time.Hour), Choice: someChoice(), File: someFile(1), Quiet: "job 1",
	}
	w.enqueue(o)
	got := w.claimOne(node)
	o.Count, o.Attempt, o.CreatedAt = 1, 1, w.clock.now()
	equal(w, "row", got, o)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: got.ID, ProviderID: "p"})).ok(w)
	unnamed := w.outgoing("web", "2")
	unnamed.ID = ""
	w.enqueue(unnamed, unnamed)
	first := w.claimOne(node)
	if first.ID == "" || first.Choice != nil || first.File != nil {
		w.Fatalf("the store made no id, or a choice or a file: %+v", first)
	}
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "p"})).ok(w)
	if second := w.claimOne(node); second.ID == first.ID || second.ID == "" {
		w.Fatalf("two rows without a name became one: %+v", second)
	}
}

func rowsOfARunAreUnique(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	w.finish(answered(c, run))
	a, b, again := w.outgoing("web", "1"), w.outgoing("web", "2"), w.outgoing("web", "3")
	a.RunID, a.N = run, 1
	b.RunID, b.N = run, 2
	again.RunID, again.N = run, 1
	w.enqueue(a, b)
	w.enqueue(again)
	equal(w, "claimed", outIDs(w.claim(node)), []string{a.ID, b.ID})
}

func rowsOutsideOfRuns(w *world) {
	node := w.node()
	a, b := w.outgoing("web", "1"), w.outgoing("web", "2")
	w.enqueue(a, b) // both have no run and number 0
	again := a
	again.Text = "another text"
	w.enqueue(again)
	list := w.claim(node)
	equal(w, "claimed", outIDs(list), []string{a.ID, b.ID})
	equal(w, "text", list[0].Text, a.Text)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: a.ID, ProviderID: "p"})).ok(w)
	w.enqueue(a)
	equal(w, "a delivered row is not sent again", len(w.claim(node)), 0)
	w.enqueue()
}

func oneUnderWayPerChat(w *world) {
	node, other := w.node(), w.node()
	first, second, elsewhere := w.outgoing("web", "1"), w.outgoing("web", "1"), w.outgoing("web", "2")
	second.Target.Thread = "another thread of the same chat"
	same := w.outgoing("api", "1") // the same number on another channel is another chat
	for _, o := range []store.Outgoing{first, second, elsewhere, same} {
		w.enqueue(o)
		w.clock.advance(time.Millisecond)
	}
	equal(w, "claimed", outIDs(w.claim(node, "web", "api")), []string{first.ID, elsewhere.ID, same.ID})
	equal(w, "claimed by another node", len(w.claim(other, "web", "api")), 0)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "p"})).ok(w)
	equal(w, "claimed by another node", outIDs(w.claim(other, "web", "api")), []string{second.ID})
}

func onlyNamedChannels(w *world) {
	node := w.node()
	web, api := w.outgoing("web", "1"), w.outgoing("api", "1")
	w.enqueue(web, api)
	equal(w, "claimed", outIDs(w.claim(node, "api", "telegram:1")), []string{api.ID})
	list := w.claimAtMost(store.ClaimOutgoingParams{Node: node, Limit: many})
	equal(w, "claimed for no channel", len(list), 0)
	equal(w, "claimed", outIDs(w.claim(node, "web")), []string{web.ID})
}

func claimLimit(w *world) {
	node := w.node()
	var ids []string
	for i := range 5 {
		o := w.outgoing("web", strconv.Itoa(i))
		ids = append(ids, o.ID)
		w.enqueue(o)
		w.clock.advance(time.Millisecond)
	}
	for _, want := range [][]string{ids[:2], ids[2:4], ids[4:], nil} {
		list := w.claimAtMost(store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: 2})
		equal(w, "claimed", outIDs(list), want)
	}
}

func delayIsWaitedFor(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	o.Delay = 5 * time.Second
	w.enqueue(o)
	w.clock.advance(5*time.Second - time.Millisecond)
	equal(w, "claimed before the delay has passed", len(w.claim(node)), 0)
	w.clock.advance(time.Millisecond)
	equal(w, "claimed", w.claimOne(node).ID, o.ID)
}

func unclearSendIsMarked(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "timeout", MaybeSent: true})
	equal(w, "maybe sent after an unclear end", w.claimOne(node).MaybeSent, true)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "429"})
	equal(w, "maybe sent stays", w.claimOne(node).MaybeSent, true)
}

func undeliveredComesAgain(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	for attempt := 1; attempt <= 3; attempt++ {
		got := w.claimOne(node)
		equal(w, "attempt and maybe sent", []any{got.Attempt, got.MaybeSent}, []any{attempt, false})
		w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "429", RetryIn: 3 * time.Second})
		w.clock.advance(3*time.Second - time.Millisecond)
		equal(w, "claimed before the retry is due", len(w.claim(node)), 0)
		w.clock.advance(time.Millisecond)
	}
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1})
	w.claimOne(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).ok(w)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{})
}

// sparedAttempt: an attempt that does not count leaves the number of attempts unchanged; the row
// still counts as tried, and holds back later rows.
func sparedAttempt(w *world) {
	node := w.node()
	w.enqueue(w.outgoing("web", "1"))
	w.clock.advance(time.Millisecond)
	w.enqueue(w.outgoing("web", "1"))
	first := w.claimOne(node)
	for _, want := range []struct {
		spared bool
		next   int
	}{{true, 2}, {true, 2}, {false, 3}, {true, 3}} {
		w.undelivered(store.UndeliveredParams{Node: node, ID: first.ID, Error: "reset", RetryIn: time.Second, Uncounted: want.spared})
		equal(w, "claimed before its time", len(w.claim(node)), 0)
		w.clock.advance(time.Second)
		again := w.claimOne(node)
		equal(w, "id and attempt", []any{again.ID, again.Attempt}, []any{first.ID, want.next})
	}
}

func retryHoldsBackItsChat(w *world) {
	node := w.node()
	first, second, other := w.outgoing("box", "a"), w.outgoing("box", "a"), w.outgoing("box", "b")
	delayed := w.outgoing("box", "b")
	delayed.Delay = time.Hour
	w.enqueue(first, second, delayed, other)
	equal(w, "first attempts", outIDs(w.claim(node, "box")), []string{first.ID, other.ID})
	w.undelivered(store.UndeliveredParams{Node: node, ID: first.ID, Error: "slow down", RetryIn: 10 * time.Second})
	w.clock.advance(9 * time.Second)
	w.beat(node)
	equal(w, "while the first waits for its second attempt", len(w.claim(node, "box")), 0)
	w.clock.advance(time.Second)
	w.beat(node)
	equal(w, "when its time has come", outIDs(w.claim(node, "box")), []string{first.ID})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "1"})).ok(w)
	equal(w, "after it", outIDs(w.claim(node, "box")), []string{second.ID})
}

func permanentFailureEnds(w *world) {
	node := w.node()
	first, second := w.outgoing("web", "1"), w.outgoing("web", "1")
	w.enqueue(first)
	w.clock.advance(time.Millisecond)
	w.enqueue(second)
	w.claimOne(node)
	p := store.UndeliveredParams{Node: node, ID: first.ID, Error: "the chat does not exist", Permanent: true}
	w.undelivered(p)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1, Failed: 1, FailedAt: w.storeNow()})
	equal(w, "the next row of the chat", w.claimOne(node).ID, second.ID)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
}

// shownIsAnEntryOnce delivers rows that another conversation has made: each way in which one ends.
func shownIsAnEntryOnce(w *world) {
	node, key := w.node(), w.key()
	w.lines(key, "hello")
	row := func(text string) (store.Outgoing, *store.Shown) {
		o := w.outgoing("web", "1")
		o.Text, o.Origin = text, &chat.Origin{Kind: chat.OriginJob, Job: "j1", Name: "digest", Run: "r1", By: "agent:main:cron:j1", Outside: true}
		w.enqueue(o)
		got := w.claimOne(node)
		equal(w, "the origin of a row", got.Origin, o.Origin)
		return o, &store.Shown{Session: key, Principal: "ann", Entry: chat.TranscriptEntry{
			RunID: "r1", Role: chat.RoleAssistant, Text: text, Origin: o.Origin, Outside: true,
		}}
	}
	delivered, shown := row("delivered")
	p := store.DeliveredParams{Node: node, ID: delivered.ID, ProviderID: "1", Shown: shown}
	entry := try(w.st.Delivered(w.ctx, p)).ok(w)
	equal(w, "the entry and the owner of its session", []any{entry.Text, entry.Seq, entry.Principal}, []any{"delivered", int64(2), "ann"})
	try(w.st.Delivered(w.ctx, p)).fails(w, chat.ErrFenced) // its reply was lost, and it is repeated
	unclear, shown := row("unclear")
	w.undelivered(store.UndeliveredParams{Node: node, ID: unclear.ID, Error: "reset", Permanent: true, MaybeSent: true, Shown: shown})
	nothing, _ := row("nothing")
	w.undelivered(store.UndeliveredParams{Node: node, ID: nothing.ID, Error: "refused", Permanent: true})
	foreign, shown := row("foreign")
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: "another", ID: foreign.ID, ProviderID: "2", Shown: shown})).fails(w, chat.ErrFenced)
	all := w.transcript(store.TranscriptQuery{Session: key}).Entries
	equal(w, "entries", texts(all), []string{"hello", "delivered", "unclear"})
	equal(w, "the origin of an entry", all[1].Origin, delivered.Origin)
	equal(w, "text from outside", []bool{all[0].Outside, all[1].Outside, all[2].Outside}, []bool{false, true, true})
}

// sentIsFound looks for the messages that show a row: those that were recorded with its progress,
// and those with its end.
func sentIsFound(w *world) {
	node, at := w.node(), chat.Target{Channel: "web", ChatID: "1"}
	o, lost := w.outgoing("web", "1"), w.outgoing("web", "2")
	o.Text, o.Origin = "a long answer", &chat.Origin{Kind: chat.OriginJob, Job: "j1", Name: "digest", Outside: true}
	w.enqueue(o, lost)
	w.claim(node)
	part := func(at chat.Target, message string, from, to int) chat.Part {
		return chat.Part{At: at, Message: message, From: from, To: to}
	}
	find := func(in chat.Target, message string) result[store.SentMessage] {
		return try(w.st.SentMessage(w.ctx, in, message))
	}
	first, last := part(at, "11", 0, 7), part(at, "12", 7, 13)
	w.ok(w.st.RecordProgress(w.ctx, node, o.ID, "part 1", []chat.Part{first}))
	got := find(at, "11").ok(w)
	equal(w, "the row of a part before its end", []any{got.ID, got.Text, got.Origin, got.Part, got.FromOutside}, []any{o.ID, o.Text, o.Origin, first, true})
	w.fails(w.st.RecordProgress(w.ctx, "another", o.ID, "part 2", []chat.Part{last}), chat.ErrFenced)
	find(at, "12").fails(w, chat.ErrNotFound)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "11", Parts: []chat.Part{last}})).ok(w)
	equal(w, "the last part", find(at, "12").ok(w).Part, last)
	elsewhere := chat.Target{Channel: "web", ChatID: "2"}
	find(elsewhere, "12").fails(w, chat.ErrNotFound)
	w.undelivered(store.UndeliveredParams{Node: node, ID: lost.ID, Error: "no", Permanent: true, Progress: "part 1", Parts: []chat.Part{part(elsewhere, "12", 0, 2)}})
	got = find(elsewhere, "12").ok(w)
	equal(w, "the same id in another chat", []any{got.ID, got.FromOutside}, []any{lost.ID, false})
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneOutgoing, w.clock.now(), 10), 2)
	find(at, "11").fails(w, chat.ErrNotFound)
	find(elsewhere, "12").fails(w, chat.ErrNotFound)
}

// partlySeenExpires lets a row expire of which a person has seen a part: the store leases it, so
// that its sender adds what was seen with its end. It holds back later rows of its chat until then.
func partlySeenExpires(w *world) {
	node, key := w.node(), w.key()
	w.lines(key, "hello")
	o, later := w.outgoing("web", "1"), w.outgoing("web", "1")
	o.Origin, o.ExpiresAt = &chat.Origin{Kind: chat.OriginReminder}, w.clock.now().Add(10*time.Second)
	w.enqueue(o)
	w.clock.advance(time.Millisecond)
	w.enqueue(later)
	w.claimOne(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "429", Progress: "part 1", RetryIn: time.Hour})
	w.clock.advance(11 * time.Second)
	got := w.claimOne(node)
	equal(w, "row and expired", []any{got.ID, got.Expired}, []any{o.ID, true})
	equal(w, "rows beside it", len(w.claim(node)), 0)
	w.undelivered(store.UndeliveredParams{
		Node: node, ID: o.ID, Error: "too late", Permanent: true, Expired: true,
		Shown: &store.Shown{Session: key, Principal: "ann", Entry: chat.TranscriptEntry{RunID: "r1", Role: chat.RoleAssistant, Text: "part 1", Origin: o.Origin}},
	})
	equal(w, "entries", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries), []string{"hello", "part 1"})
	equal(w, "the row after it", w.claimOne(node).ID, later.ID)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1})
}

func shownCreatesGroups(w *world) {
	node, key := w.node(), chat.SessionKey{Agent: "main", Rest: "box:group:5"}
	o := w.outgoing("web", "1")
	o.Origin = &chat.Origin{Kind: chat.OriginReminder}
	w.enqueue(o)
	w.claimOne(node)
	shown := &store.Shown{Session: key, Entry: chat.TranscriptEntry{RunID: "r1", Role: chat.RoleAssistant, Text: "think of it", Origin: o.Origin}}
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "1", Shown: shown})).ok(w)
	equal(w, "the owner before the first message", w.session(key).Principal, "")
	p := w.message(node, key)
	w.accept(p)
	equal(w, "the owner after it", w.session(key).Principal, p.Message.Principal)
	equal(w, "entries", texts(w.transcript(store.TranscriptQuery{Session: key}).Entries)[:1], []string{"think of it"})
}

func countsByChannel(w *world) {
	node := w.node()
	for i := range 3 {
		w.enqueue(w.outgoing("web", strconv.Itoa(i)), w.outgoing("api", strconv.Itoa(i)))
	}
	for _, o := range w.claim(node, "api") {
		w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "gone", Permanent: true})
	}
	counts := try(w.st.OutboxCounts(w.ctx)).ok(w)
	equal(w, "web", counts["web"], store.OutboxCount{Waiting: 3, Oldest: w.storeNow()})
	equal(w, "api", counts["api"], store.OutboxCount{Failed: 3, FailedAt: w.storeNow()})
}

func refusedFinishSendsNothing(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := answered(c, run)
	p.Outgoing = []store.Outgoing{w.outgoing("web", "1")}
	p.Outgoing[0].Kind = store.KindReply
	p.Epoch++
	try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
	equal(w, "claimed", len(w.claim(node)), 0)
}

func deadNodeMayHaveSent(w *world) {
	first := w.node()
	o, next := w.outgoing("web", "1"), w.outgoing("web", "1")
	w.enqueue(o)
	w.clock.advance(time.Millisecond)
	w.enqueue(next)
	w.claimOne(first)
	w.clock.advance(lease)
	second := w.node()
	got := w.claimOne(second)
	equal(w, "row, attempt and maybe sent", []any{got.ID, got.Attempt, got.MaybeSent}, []any{o.ID, 2, true})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: first, ID: o.ID, ProviderID: "late"})).fails(w, chat.ErrFenced)
	w.undelivered(store.UndeliveredParams{Node: second, ID: o.ID, Error: "reset"})
	again := w.claimOne(second)
	equal(w, "maybe sent stays", []any{again.ID, again.MaybeSent}, []any{o.ID, true})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: second, ID: o.ID, ProviderID: "p"})).ok(w)
	got = w.claimOne(second)
	equal(w, "row and maybe sent", []any{got.ID, got.MaybeSent}, []any{next.ID, false})
}

func cleanStopMayHaveSent(w *world) {
	first := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(first)
	w.ok(w.st.Unregister(w.ctx, first))
	got := w.claimOne(w.node())
	equal(w, "row and maybe sent", []any{got.ID, got.MaybeSent}, []any{o.ID, true})
}

func progressIsKept(w *world) {
	first, other := w.node(), w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.fails(w.st.RecordProgress(w.ctx, first, o.ID, "early", nil), chat.ErrFenced)
	equal(w, "progress of the first attempt", w.claimOne(first).Progress, "")
	w.fails(w.st.RecordProgress(w.ctx, other, o.ID, "foreign", nil), chat.ErrFenced)
	w.ok(w.st.RecordProgress(w.ctx, first, o.ID, "part 1", nil))
	w.ok(w.st.RecordProgress(w.ctx, first, o.ID, "part 2", nil))
	w.undelivered(store.UndeliveredParams{Node: first, ID: o.ID, Error: "429"})
	equal(w, "progress after a failure", w.claimOne(first).Progress, "part 2")
	w.undelivered(store.UndeliveredParams{Node: first, ID: o.ID, Error: "429", Progress: "part 3"})
	equal(w, "progress that came with a failure", w.claimOne(first).Progress, "part 3")
	w.ok(w.st.Unregister(w.ctx, first))
	equal(w, "progress after the end of its node", w.claimOne(other).Progress, "part 3")
	w.fails(w.st.RecordProgress(w.ctx, first, o.ID, "late", nil), chat.ErrFenced)
}

// itsNodeSendsFirst checks that a row of a node waits for it, and holds back later rows of its
// chat.
func itsNodeSendsFirst(w *world) {
	own, other := w.node(), w.node()
	o, next := w.outgoing("web", "1"), w.outgoing("web", "1")
	o.First, o.Progress = own, "preview 7"
	w.enqueue(o, next)
	equal(w, "rows for the other node", len(w.claim(other)), 0)
	got := w.claimOne(own)
	equal(w, "row and progress", []any{got.ID, got.Progress}, []any{o.ID, "preview 7"})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: own, ID: o.ID, ProviderID: "p"})).ok(w)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: other, ID: w.claimOne(other).ID, ProviderID: "p"})).ok(w)

	late, failed := w.outgoing("web", "1"), w.outgoing("web", "2")
	late.First, failed.First = own, own
	w.enqueue(late)
	w.clock.advance(store.FirstTime - time.Millisecond)
	equal(w, "rows for the other node just before the end", len(w.claim(other)), 0)
	w.clock.advance(time.Millisecond)
	equal(w, "row after the end", w.claimOne(other).ID, late.ID)
	w.enqueue(failed)
	w.claimOne(own)
	w.undelivered(store.UndeliveredParams{Node: own, ID: failed.ID, Error: "429"})
	equal(w, "row after a failed attempt", w.claimOne(other).ID, failed.ID)
}

// previewIsKept checks that a later attempt of a run gets what shows its unfinished answer, and the
// mark that its agent has read text from outside.
func previewIsKept(w *world) {
	node, key := w.node(), w.key()
	c, run, seq := w.turn(node, key)
	w.fails(w.st.RecordPreview(w.ctx, store.Claim{Session: key, Node: node, Epoch: c.Epoch + 1}, run, "foreign"), chat.ErrFenced)
	w.ok(w.st.RecordPreview(w.ctx, c, run, "message 1"))
	w.ok(w.st.RecordPreview(w.ctx, c, run, "message 2"))
	w.fails(w.st.RecordOutside(w.ctx, store.Claim{Session: key, Node: node, Epoch: c.Epoch + 1}, run), chat.ErrFenced)
	equal(w, "mark of a run under another claim", w.run(run).Outside, false)
	w.ok(w.st.RecordOutside(w.ctx, c, run))
	program := chat.Program{Host: "a", PID: 7, Started: "boot 9"}
	w.fails(w.st.RecordProgram(w.ctx, store.Claim{Session: key, Node: node, Epoch: c.Epoch + 1}, run, program), chat.ErrFenced)
	w.ok(w.st.RecordProgram(w.ctx, c, run, chat.Program{PID: 6}))
	w.ok(w.st.RecordProgram(w.ctx, c, run, program))
	w.ok(w.st.Unregister(w.ctx, node))
	next := w.node()
	taken := w.sweepOne(next, key)
	again := w.start(taken.Claim, run, seq)
	equal(w, "preview, mark and program at the start of the next attempt", []any{again.Preview, again.Outside, again.Program}, []any{"message 2", true, program})
	equal(w, "preview and mark of the run", []any{w.run(run).Preview, w.run(run).Outside}, []any{"message 2", true})
	oc, other, _ := w.turn(next, w.key())
	p := answered(oc, other)
	p.Outside = true
	try(w.st.Finish(w.ctx, p)).ok(w)
	equal(w, "mark at the end", w.run(other).Outside, true)
}

func unknownEndIsClosed(w *world) {
	node := w.node()
	o, next := w.outgoing("web", "1"), w.outgoing("web", "1")
	w.enqueue(o)
	w.clock.advance(time.Millisecond)
	w.enqueue(next)
	w.claimOne(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "canceled", Permanent: true, MaybeSent: true})
	equal(w, "counts", w.counts(), store.OutboxCount{Waiting: 1, MaybeSent: 1})
	equal(w, "the row that is claimed next", w.claimOne(node).ID, next.ID)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "late"})).fails(w, chat.ErrFenced)
}

func liveNodeKeepsItsRow(w *world) {
	first, second := w.node(), w.node()
	w.enqueue(w.outgoing("web", "1"))
	w.claimOne(first)
	for range 10 {
		w.clock.advance(lease - time.Second)
		w.beat(first)
		w.beat(second)
		equal(w, "claimed while the sender lives", len(w.claim(second)), 0)
		equal(w, "claimed by the sender again", len(w.claim(first)), 0)
	}
}

func deliveredNeedsID(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(node)
	if _, err := w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: ""}); err == nil {
		w.Fatalf("delivered without the provider's id")
	}
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).ok(w)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{})
}

func onlyTheSenderReports(w *world) {
	node, other := w.node(), w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
	w.claimOne(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: other, ID: o.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
	try(w.st.Undelivered(w.ctx, store.UndeliveredParams{Node: other, ID: o.ID, Permanent: true})).fails(w, chat.ErrFenced)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: w.id("out"), ProviderID: "p"})).fails(w, chat.ErrFenced)
	equal(w, "claimed", len(w.claim(other)), 0)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).ok(w)
}

func tooLateExpires(w *world) {
	node := w.node()
	o, onTime := w.outgoing("web", "1"), w.outgoing("web", "2")
	o.ExpiresAt = w.clock.now().Add(10 * time.Second)
	onTime.ExpiresAt = w.clock.now().Add(11 * time.Second)
	w.enqueue(o, onTime)
	w.clock.advance(10*time.Second + time.Millisecond)
	list := w.claim(node)
	byID := map[string]bool{}
	for _, got := range list {
		byID[got.ID] = got.Expired
	}
	equal(w, "expired", byID, map[string]bool{o.ID: true, onTime.ID: false})
	equal(w, "told again", len(w.claim(node)), 0)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: onTime.ID, ProviderID: "p"})).ok(w)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{})
}

// quietFor sets quiet hours of a chat, from an hour ago for the given time.
func (w *world) quietFor(chatID string, d time.Duration) (end time.Time) {
	w.Helper()
	now := w.clock.now().UTC().Truncate(time.Minute)
	end = now.Add(d)
	minute := func(t time.Time) int { return t.Hour()*60 + t.Minute() }
	w.ok(w.st.SetQuietHours(w.ctx, chat.Target{Channel: "web", ChatID: chatID}, &schedule.Quiet{From: minute(now.Add(-time.Hour)), To: minute(end), Zone: "UTC"}, ""))
	return end
}

func quietHoursHold(w *world) {
	node := w.node()
	tried := w.outgoing("web", "1")
	tried.Quiet = "job 1"
	w.enqueue(tried)
	w.claimOne(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: tried.ID, Error: "e"})
	end := w.quietFor("1", 7*time.Hour)
	first, second, answer, elsewhere := w.outgoing("web", "1"), w.outgoing("web", "1"), w.outgoing("web", "1"), w.outgoing("web", "2")
	first.Quiet, second.Quiet, elsewhere.Quiet = "job 1", "job 2", "job 1"
	first.ExpiresAt, second.ExpiresAt = w.clock.now().Add(time.Hour), end.Add(3*time.Hour)
	w.enqueue(first, second, answer, elsewhere)
	want := []string{tried.ID, elsewhere.ID, answer.ID}
	for range 4 {
		for _, o := range w.claim(node) {
			equal(w, "claimed", o.ID, want[0])
			want = want[1:]
			try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).ok(w)
		}
	}
	equal(w, "not claimed", len(want), 0)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{})
	w.clock.advance(end.Sub(w.clock.now()) - time.Millisecond)
	node = w.node()
	equal(w, "claimed during quiet hours", len(w.claim(node)), 0)
	w.clock.advance(time.Millisecond)
	got := w.claimOne(node)
	equal(w, "the first", got.ID, first.ID)
	equal(w, "it expires", got.ExpiresAt, end.Add(time.Hour))
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "p"})).ok(w)
	got = w.claimOne(node)
	equal(w, "the second", got.ID, second.ID)
	equal(w, "it expires", got.ExpiresAt, second.ExpiresAt)
}

func quietHoursEnd(w *world) {
	node := w.node()
	at := chat.Target{Channel: "web:other bot", ChatID: "1", Thread: "7"}
	w.quietFor("1", 7*time.Hour)
	o := w.outgoing("web", "1")
	o.Quiet = "job 1"
	w.enqueue(o)
	equal(w, "claimed", len(w.claim(node)), 0)
	_, ok, err := w.st.QuietHours(w.ctx, at)
	w.ok(err)
	equal(w, "the chat has quiet hours", ok, true)
	w.ok(w.st.SetQuietHours(w.ctx, at, &schedule.Quiet{From: 0, To: 23*60 + 59, Zone: "UTC"}, "ann"))
	if m := w.clock.now().UTC(); m.Hour() != 23 || m.Minute() != 59 {
		equal(w, "claimed in other hours", len(w.claim(node)), 0)
	}
	w.ok(w.st.SetZone(w.ctx, "ann", "Asia/Tokyo"))
	q, _, err := w.st.QuietHours(w.ctx, at)
	w.ok(err)
	equal(w, "the zone of the person", q, schedule.Quiet{From: 0, To: 23*60 + 59, Zone: "Asia/Tokyo"})
	w.ok(w.st.SetQuietHours(w.ctx, at, nil, ""))
	_, ok, err = w.st.QuietHours(w.ctx, at)
	w.ok(err)
	equal(w, "the chat has quiet hours", ok, false)
	equal(w, "claimed", w.claimOne(node).ID, o.ID)
}

func laterRunSupersedes(w *world) {
	node := w.node()
	end := w.quietFor("1", 7*time.Hour)
	row := func(job, run string, n int) store.Outgoing {
		o := w.outgoing("web", "1")
		o.Quiet, o.RunID, o.N, o.Kind = job, run, n, store.KindReply
		return o
	}
	old, oldFile, other, alert, last, lastFile := row("j", "run 1", 0), row("j", "run 1", 1), row("k", "run 2", 0), row("alert j", "run 1", 1000), row("j", "run 3", 0), row("j", "run 3", 1)
	for _, o := range []store.Outgoing{old, oldFile, other, alert, last, lastFile} {
		w.enqueue(o)
		equal(w, "claimed", len(w.claim(node)), 0)
	}
	equal(w, "states", w.h.Query(w.tb, `SELECT state FROM outbox WHERE run_id = 'run 1' ORDER BY n`), [][]any{{"superseded"}, {"superseded"}, {"pending"}})
	w.clock.advance(end.Sub(w.clock.now()))
	node = w.node()
	for _, want := range []store.Outgoing{other, alert, last, lastFile} {
		got := w.claimOne(node)
		equal(w, "claimed", got.ID, want.ID)
		try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: got.ID, ProviderID: "p"})).ok(w)
	}
}

func deadNodeClaimsNothing(w *world) {
	dead := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.clock.advance(lease)
	for _, node := range []string{dead, "unregistered"} {
		list, err := w.st.ClaimOutgoing(w.ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: many})
		if err == nil {
			equal(w, "claimed by a dead node", len(list), 0)
		}
	}
	got := w.claimOne(w.node())
	equal(w, "attempt and maybe sent", []any{got.Attempt, got.MaybeSent}, []any{1, false})
}

// lostClaimIsRepeated: the result of a claim was lost, so the node does not know what it has taken.
func lostClaimIsRepeated(w *world) {
	node, other := w.node(), w.node()
	first, sent, second := w.outgoing("web", "1"), w.outgoing("web", "2"), w.outgoing("web", "1")
	w.enqueue(first, sent)
	w.clock.advance(time.Millisecond)
	w.enqueue(second)
	lost := w.claim(node)
	equal(w, "claimed", outIDs(lost), []string{first.ID, sent.ID})
	w.sending[node] = []string{sent.ID}
	equal(w, "claimed by another node", len(w.claim(other)), 0)
	w.clock.advance(time.Second)
	for range 2 {
		w.sending[node] = []string{sent.ID}
		again := w.claim(node)
		equal(w, "claimed again", again, lost[:1])
	}
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: sent.ID, ProviderID: "p"})).ok(w)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "p"})).ok(w)
	equal(w, "the next of the chat", w.claimOne(node).ID, second.ID)
}

// unrecordedMayHaveBeenSent: the attempt has ended, and its result could not be written.
func unrecordedMayHaveBeenSent(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(node)
	equal(w, "claimed while it is sent", len(w.claim(node)), 0)
	w.sending[node] = nil
	got := w.claimAtMost(store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: many, Unrecorded: []string{o.ID}})
	equal(w, "claimed", outIDs(got), []string{o.ID})
	equal(w, "attempt and maybe sent", []any{got[0].Attempt, got[0].MaybeSent}, []any{2, true})
}
