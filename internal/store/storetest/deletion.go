package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func deletionTests() []test {
	return []test{
		{"LeavesNoContentBehind", deletionLeavesNothing},
		{"OfARunOfAJobLeavesNoContentBehind", deletionOfARun},
		{"RemovesSubTurnsAtAllDepths", deletionRemovesTasks},
		{"WaitsForSubTurnsThatRun", deletionWaitsForTasks},
		{"EndsWhatWaitsToBeSent", deletionEndsOutgoing},
		{"ListsTheFilesOfItsMessages", deletionListsFiles},
	}
}

// mark is in everything that the tests write for a session that they delete. It is one word, so
// that the search index stores it unchanged.
const mark = "canaryq7x"

// The rules for tables.
const (
	cleared = "cleared by deletion"
	exempt  = "exempt because "
)

// deletionRules define for each table with a text column what a deletion does. A table that is
// missing here fails the test: decide what a deletion must remove from it, plant the mark there,
// and add it.
func deletionRules() map[string]string {
	return map[string]string{
		"inbox":              cleared,
		"runs":               cleared,
		"turn_rounds":        cleared,
		"sessions":           cleared,
		"transcript":         cleared,
		"outbox":             cleared,
		"tool_questions":     cleared,
		"approvals":          cleared,
		"agent_sessions":     cleared,
		"toc_parts":          cleared,
		"toc_nodes":          cleared,
		"toc_progress":       cleared,
		"cron_run_logs":      cleared, // the summary, and in the row of an isolated run the columns about its session; the end of the run stays
		"search_progress":    cleared,
		"search_transcripts": cleared,
		"search_entries":     cleared,
		"search_state":       exempt + "it has the key of the entry that was indexed last",
		// Contentless: a deleted entry is no longer found, and its words leave with the next merge
		// of their segment.
		"transcript_words":         exempt + "it is an index without content",
		"transcript_words_data":    exempt + "it has words without their order, of which the deleted ones leave with a merge",
		"transcript_words_idx":     exempt + "it has the first words of segments",
		"transcript_words_config":  exempt + "it has settings",
		"transcript_words_docsize": exempt + "it has numbers",
		"kept_transcripts":         exempt + "it names transcripts that are kept on purpose",
		"branches":                 exempt + "it has keys and numbers, and goes with the transcripts",
		"sent":                     exempt + "it has ids, and goes with the content of its outgoing message",
		"session_names":            exempt + "it has the keys that jobs and hooks name",
		"tombstones":               exempt + "it has keys and numbers, so that no old message is accepted again",
		"audit_log":                exempt + "the log of changes has hashes, and its own retention",
		"usage_counters":           exempt + "usage is counted per principal and day",
		"usage_totals":             exempt + "usage is counted per principal and day",
		"usage_writers":            exempt + "it has numbers of batches",
		"cron_jobs":                exempt + "jobs belong to their owner and stay",
		"answers":                  exempt + "it has ids that calls returned, for a day",
		"hold":                     exempt + "it is about the gateway",
		"nodes":                    exempt + "it is about processes",
		"leases":                   exempt + "it is about processes",
		"credentials":              exempt + "it is about principals",
		"allowances":               exempt + "it is about principals",
		"zones":                    exempt + "it is about principals",
		"quiet_hours":              exempt + "it is about chats",
		"token_ratios":             exempt + "it is about endpoints of models",
		"pairings":                 exempt + "it is about persons of a channel",
		"pairing_grants":           exempt + "it is about persons of a channel",
		"channel_groups":           exempt + "it is about chats of a channel",
		"buttons":                  exempt + "it has commands that buttons of a chat send until they expire",
		"goose_db_version":         exempt + "it is about the schema",
		"laneway_migrations":       exempt + "it is about the schema",
	}
}

// textTables lists the tables with text columns, and those columns.
func (w *world) textTables() map[string][]string {
	w.Helper()
	sql := `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name IN (SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE')
			AND data_type IN ('text', 'character varying', 'json', 'jsonb', 'bytea', 'tsvector', 'ARRAY')`
	if w.st.Kind() == "sqlite" {
		sql = `SELECT l.name, c.name FROM pragma_table_list l, pragma_table_xinfo(l.name) c
			WHERE l.schema = 'main' AND l.type <> 'view' AND l.name NOT LIKE 'sqlite\_%' ESCAPE '\' AND upper(c.type) NOT IN ('INTEGER', 'REAL')`
	}
	tables := map[string][]string{}
	for _, row := range w.h.Query(w.tb, sql) {
		tables[fmt.Sprint(row[0])] = append(tables[fmt.Sprint(row[0])], fmt.Sprint(row[1]))
	}
	return tables
}

// found lists the tables that contain the mark, except the exempt ones.
func (w *world) found() map[string]bool {
	w.Helper()
	rules, where := deletionRules(), map[string]bool{}
	for table, columns := range w.textTables() {
		rule, known := rules[table]
		if !known {
			w.Errorf("the table %s has text, and no rule says what the deletion of a session does with it: see deletionRules", table)
		}
		if strings.HasPrefix(rule, exempt) && table != "audit_log" && table != "answers" {
			continue
		}
		for _, column := range columns {
			rows := w.h.Query(w.tb, fmt.Sprintf(`SELECT count(*) FROM %s WHERE lower(CAST("%s" AS TEXT)) LIKE '%%%s%%'`, table, column, mark))
			if fmt.Sprint(rows[0][0]) != "0" {
				where[table+"."+column] = true
			}
		}
	}
	return where
}

func contentOfMark(files ...string) chat.Content {
	c := chat.Content{Text: mark, Sender: chat.Sender{ID: mark, Name: mark}, Options: chat.Options{SystemPrompt: mark}}
	for _, f := range files {
		c.Attachments = append(c.Attachments, chat.Attachment{Name: mark, Path: f})
	}
	return c
}

// plant creates a session with the mark in everything that belongs to it, and returns its key.
func (w *world) plant(node string) chat.SessionKey {
	w.Helper()
	key := w.key()
	p := w.message(node, key)
	p.Message.Content = contentOfMark("telegram-1/a")
	a := w.accept(p)
	c, run := claimOf(key, a), p.Message.ID
	lines := []chat.TranscriptEntry{{Role: chat.RoleUser, Text: mark, Sender: chat.Sender{Name: mark}, RunID: run}}
	try(w.st.Start(w.ctx, store.StartParams{Claim: c, RunID: run, Lane: "main", Seqs: []int64{a.Seq}, Transcript: lines})).ok(w)
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, mark))))
	w.ok(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1}, chat.ToolResult{Text: mark})))
	w.plantTasks(c, run)
	out := w.outgoing("telegram:1", "7")
	out.RunID, out.Session, out.Text, out.Kind = run, key, mark, store.KindReply
	out.Choice, out.File = &chat.Choice{Typed: mark}, &chat.Attachment{Name: mark, Path: "outgoing/b"}
	end := store.FinishParams{
		Claim: c, RunID: run, State: store.RunFailed, Outcome: chat.OutcomeFailed, Error: mark, Detail: mark, Preview: mark,
		Transcript: []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: mark, RunID: run}}, Outgoing: []store.Outgoing{out},
	}
	w.finish(end) // without Journal: its rounds stay, as after a crash
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Notes: map[string]string{"model": mark}}))
	w.ok(w.st.PutQuestion(w.ctx, store.Question{ID: w.id("q"), Owner: "ann", Session: key, Body: json.RawMessage(`{"args":"` + mark + `"}`)}))
	w.approve("ann", key, mark)
	w.ok(w.st.PutAgentSession(w.ctx, key, chat.AgentSession{ID: mark, Dir: mark, Host: mark, PIDStarted: mark, Runs: []string{mark}}))
	w.plantJob(node, key)
	w.putPart(w.part(key, func(p *store.TocPart) { p.Text = mark }))
	ref := store.TocRef{Owner: "ann", Level: store.TocWeek, Period: "2026-W11"}
	try(w.st.BeginTocNode(w.ctx, ref, "claim")).ok(w)
	try(w.st.EndTocNode(w.ctx, ref, "claim", mark)).ok(w)
	try(w.st.IndexTranscripts(w.ctx)).ok(w)
	to := w.outgoing("web", key.String()) // the answer of a job in another session
	to.Session, to.Text = w.key(), mark
	w.enqueue(to)
	waits := w.message(node, key)
	waits.Message.Content = contentOfMark()
	w.accept(waits)
	return key
}

// plantTasks creates a sub-turn of a run, with a sub-turn of its own, and a compaction. All have
// ended.
func (w *world) plantTasks(c store.Claim, run string) {
	w.Helper()
	parent, root := c, run
	for range 2 {
		p := w.spawn(parent, run, root)
		p.Accept.Message.Content = contentOfMark("uploads/c")
		child := claimOf(p.Accept.Message.Session, w.spawned(p))
		id := p.Accept.Message.ID
		w.start(child, id, 1)
		defer func() { // a child ends before its parent
			end := answered(child, id)
			end.Transcript = []chat.TranscriptEntry{{Role: chat.RoleAssistant, Text: mark, RunID: id}}
			w.finish(end)
		}()
		parent, run = child, id
	}
	side := w.message(c.Node, chat.CompactionKey("main", w.session(c.Session).SessionID))
	side.Message.Content = contentOfMark()
	a := w.accept(side)
	claim := claimOf(side.Message.Session, a)
	w.start(claim, side.Message.ID, a.Seq)
	w.finish(answered(claim, side.Message.ID))
}

// plantJob runs a job in a session that it shares with people.
func (w *world) plantJob(node string, key chat.SessionKey) {
	w.Helper()
	w.job(func(j *cron.Job) { j.Session = "session:" + key.Rest })
	l := w.due(node)
	equal(w, "session of the run", l.Message.Session, key)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) { e.Summary = mark })
}

func deletionLeavesNothing(w *world) {
	node := w.node()
	key := w.plant(node)
	before := w.found()
	for table, rule := range deletionRules() {
		_, exists := w.textTables()[table]
		there := slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(c string) bool { return strings.HasPrefix(c, table+".") })
		if keys := strings.HasPrefix(table, "search_") && table != "search_entries" || table == "toc_progress"; exists && rule == cleared && !there && !keys {
			w.Errorf("the test plants nothing in %s", table)
		}
	}
	dedupe := w.h.Query(w.tb, `SELECT message_id, dedupe, params_hash FROM inbox WHERE session_key = '`+key.String()+`' ORDER BY seq`)
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, Audit: &chat.Audit{Who: "ann", Verb: "sessions.delete", Object: key.String()}})).ok(w)
	equal(w, "deleted", deleted.Deleted, true)
	equal(w, "left", w.found(), nil)
	equal(w, "ids and hashes", w.h.Query(w.tb, `SELECT message_id, dedupe, params_hash FROM inbox WHERE session_key = '`+key.String()+`' ORDER BY seq`), dedupe)
	equal(w, "tasks", w.tasks(store.TaskFilter{}), nil)
	for _, table := range []string{"search_progress", "search_transcripts", "toc_progress"} {
		if _, exists := w.textTables()[table]; exists {
			equal(w, "rows of "+table, len(w.h.Query(w.tb, `SELECT 1 FROM `+table)), 0)
		}
	}
	w.checkInvariants("after the deletion")
}

func deletionOfARun(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, mark, l.Message.ID))
	p := w.ending(c, l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) { e.Summary = mark })
	p.Transcript, p.Preview = []chat.TranscriptEntry{entry(chat.RoleAssistant, mark, l.Message.ID)}, mark
	w.finish(p)
	equal(w, "planted", len(w.found()) > 0, true)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session})).ok(w)
	equal(w, "left", w.found(), nil)
	equal(w, "the row of the ledger", w.ledger(l.Run.ID).State, cron.RunOK)
}

func deletionRemovesTasks(w *world) {
	node := w.node()
	other, parent, _ := w.turn(node, w.key())
	kept := w.spawn(other, parent, parent)
	w.spawned(kept)
	key := w.plant(node)
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, KeepTranscript: true})).ok(w)
	equal(w, "tasks", w.tasks(store.TaskFilter{}), []string{kept.Accept.Message.ID})
	list, _ := w.list(store.SessionFilter{})
	equal(w, "sessions", len(list), 2) // the session of the other tree and its child
	if tr := w.transcript(store.TranscriptQuery{Session: key, SessionID: deleted.Kept}); len(tr.Entries) == 0 {
		w.Fatalf("the transcript %q was not kept", deleted.Kept)
	}
}

func deletionWaitsForTasks(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := w.spawn(c, run, run)
	p.Announce = true
	a := w.spawned(p)
	child := claimOf(p.Accept.Message.Session, a)
	w.start(child, p.Accept.Message.ID, a.Seq)
	w.finish(answered(c, run))
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).fails(w, chat.ErrConflict)
	w.finish(stopped(child, p.Accept.Message.ID))
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	equal(w, "tasks", w.tasks(store.TaskFilter{}), nil)
	equal(w, "to announce", w.left(), nil)
}

func deletionEndsOutgoing(w *world) {
	node, key := w.node(), w.key()
	w.write(key, 1, 1)
	sending, waiting, other := w.outgoing("telegram:1", "7"), w.outgoing("telegram:1", "7"), w.outgoing("telegram:1", "8")
	sending.Session, waiting.Session, other.Session = key, key, w.key()
	w.enqueue(sending, waiting)
	equal(w, "claimed", len(w.claim(node, "telegram:1")), 1)
	w.enqueue(other)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	states := w.h.Query(w.tb, `SELECT id, state FROM outbox ORDER BY place`)
	equal(w, "states", states, [][]any{{sending.ID, store.OutDeleted}, {waiting.ID, store.OutDeleted}, {other.ID, store.OutPending}})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: sending.ID, ProviderID: "1"})).fails(w, chat.ErrFenced)
	got := w.claim(node, "telegram:1")
	equal(w, "what is sent", []any{len(got), got[0].ID}, []any{1, other.ID})
	counts := try(w.st.OutboxCounts(w.ctx)).ok(w)
	equal(w, "waiting and failed", counts, map[string]store.OutboxCount{"telegram:1": {Waiting: 1, Oldest: w.storeNow()}})
}

func deletionListsFiles(w *world) {
	node := w.node()
	key := w.plant(node)
	other := w.message(node, w.key())
	other.Message.Content = contentOfMark("uploads/c", "uploads/d")
	w.accept(other)
	deleted := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	paths := store.Paths(deleted.Files)
	slices.Sort(paths)
	equal(w, "files", slices.Compact(paths), []string{"outgoing/b", "telegram-1/a", "uploads/c"})
	named := try(w.st.FilesNamed(w.ctx, []string{"outgoing/b", "telegram-1/a", "uploads/c"})).ok(w)
	equal(w, "named by others", named, []string{"uploads/c"})
}

func retentionTests() []test {
	return []test{
		{"OldMessagesGoWithTheirRuns", oldMessagesGo},
		{"MessagesOfOneTurnGoTogether", oneTurnGoesTogether},
		{"WhatIsNotOverStays", unfinishedStays},
		{"NothingIsDoneTwice", pruneTwice},
		{"ASessionGoesOnAfterItsMessagesHaveGone", sessionGoesOn},
		{"OldOutgoingMessagesGo", oldOutgoingGoes},
		{"NoticesStayAsLongAsTheirMessages", noticesStay},
		{"OldSessionsOfTasksAndCompactionsGo", oldSideTurnsGo},
		{"SessionsOfTasksStayWhileTheyAreNeeded", neededSideTurnsStay},
		{"FilesAreInUseUntilTheirMessagesAreOver", filesInUse},
		{"PassingSessionsAreListedAfterTheirEnd", passing},
	}
}

// pruneAll repeats an operation until nothing is left to do.
func (w *world) pruneAll(what store.Prunable, before time.Time, limit int) (total int) {
	w.Helper()
	for range 1000 {
		n := try(w.st.Prune(w.ctx, store.PruneParams{What: what, Before: before, Limit: limit})).ok(w)
		if n == 0 {
			return total
		}
		total += n
	}
	w.Fatalf("it never ends")
	return total
}

// isGone expects that a message and its run do not exist any more.
func (w *world) isGone(id string) {
	w.Helper()
	try(w.st.MessageByID(w.ctx, id)).fails(w, chat.ErrNotFound)
	try(w.st.RunByID(w.ctx, id)).fails(w, chat.ErrNotFound)
}

func oldMessagesGo(w *world) {
	node := w.node()
	var old, young []string
	for range 7 {
		c, run, _ := w.turn(node, w.key())
		w.finish(answered(c, run))
		old = append(old, run)
	}
	w.clock.advance(time.Second)
	border := w.clock.now()
	for range 3 {
		c, run, _ := w.turn(node, w.key())
		w.finish(answered(c, run))
		young = append(young, run)
	}
	n := try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneMessages, Before: border, Limit: 3})).ok(w)
	equal(w, "one piece", n, 3)
	equal(w, "the rest", w.pruneAll(store.PruneMessages, border, 3), 4)
	for _, id := range old {
		w.isGone(id)
	}
	for _, id := range young {
		equal(w, "outcome", w.row(id).Outcome, chat.OutcomeAnswered)
		equal(w, "run", w.run(id).State, store.RunOK)
	}
	w.checkInvariants("after the messages have gone")
}

func oneTurnGoesTogether(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	second, b := w.acceptText(node, key)
	third, c := w.acceptText(node, key)
	claim := claimOf(key, a)
	w.start(claim, second, a.Seq, b.Seq)
	equal(w, "joined", w.join(claim, second, c.Seq), []int64{c.Seq})
	w.finish(answered(claim, second))
	equal(w, "merged", w.row(first).Outcome, chat.OutcomeMerged)
	equal(w, "joined", w.row(third).Outcome, chat.OutcomeMerged)
	w.clock.advance(time.Second)
	n := try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneMessages, Before: w.clock.now(), Limit: 1})).ok(w)
	equal(w, "with one row asked for", n, 3)
	for _, id := range []string{first, second, third} {
		w.isGone(id)
	}
	w.checkInvariants("after the turn has gone")
}

func unfinishedStays(w *world) {
	node, key := w.node(), w.key()
	c, running, _ := w.turn(node, key)
	waiting, _ := w.acceptText(node, key)
	other := w.key()
	stopped, run, _ := w.turn(node, other)
	w.finish(store.FinishParams{Claim: stopped, RunID: run, State: store.RunStopped, Outcome: chat.OutcomeStopped, StillRunning: true})
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneMessages, w.clock.now(), 10), 0)
	equal(w, "running", w.row(running).State, store.StateRunning)
	equal(w, "waiting", w.row(waiting).State, store.StateWaiting)
	equal(w, "stopping", w.run(run).State, store.RunStopping)
	w.ok(w.st.EndStopping(w.ctx, stopped, run))
	equal(w, "removed when it has ended", w.pruneAll(store.PruneMessages, w.clock.now(), 10), 1)
	w.finish(answered(c, running))
	w.checkInvariants("after the end")
}

func pruneTwice(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	w.finish(answered(c, run))
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneMessages, w.clock.now(), 0), 1)
	equal(w, "removed again", w.pruneAll(store.PruneMessages, w.clock.now(), 0), 0)
}

func sessionGoesOn(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := answered(c, run)
	p.Transcript = []chat.TranscriptEntry{{RunID: run, Role: chat.RoleAssistant, Text: "still known"}}
	w.finish(p)
	before := w.session(key)
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneMessages, w.clock.now(), 0), 1)
	equal(w, "last sequence number", w.session(key).LastSeq, before.LastSeq)
	entries := w.transcript(store.TranscriptQuery{Session: key}).Entries
	equal(w, "the conversation is kept", entries[len(entries)-1].Text, "still known")
	c, run, seq := w.turn(node, key)
	equal(w, "next sequence number", seq, before.LastSeq+1)
	w.finish(answered(c, run))
	w.checkInvariants("after the session continued")
}

func oldOutgoingGoes(w *world) {
	node := w.node()
	for _, chatID := range []string{"1", "2", "3"} {
		w.enqueue(w.outgoing("web", chatID))
	}
	rows := w.claim(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: rows[0].ID, ProviderID: "p1"})).ok(w)
	w.undelivered(store.UndeliveredParams{Node: node, ID: rows[1].ID, Error: "no", Permanent: true})
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneOutgoing, w.clock.now(), 1), 2) // the third is being sent
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: rows[2].ID, ProviderID: "p3"})).ok(w)
	equal(w, "too young", w.pruneAll(store.PruneOutgoing, w.clock.now(), 1), 0)
	w.clock.advance(time.Millisecond)
	equal(w, "removed", w.pruneAll(store.PruneOutgoing, w.clock.now(), 1), 1)
	equal(w, "failed ones", w.counts().Failed, 0)
}

func noticesStay(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	for range 3 { // one waits, the others are dropped
		w.accept(w.tele(node, key))
	}
	w.clock.advance(2 * time.Second)
	list := w.notices(node)
	equal(w, "notices", len(list), 1)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: list[0].ID, ProviderID: "p"})).ok(w)
	w.clock.advance(time.Second)
	border := w.clock.now()
	equal(w, "messages removed", w.pruneAll(store.PruneMessages, border, 1), 2)
	equal(w, "notices removed", w.pruneAll(store.PruneOutgoing, border, 0), 1)
	w.checkInvariants("after the notice has gone")
	w.finish(answered(c, run))
}

func passing(w *world) {
	node := w.node()
	listed := func(when string, want ...chat.SessionKey) {
		w.Helper()
		got := try(w.st.Passed(w.ctx, 0, 100)).ok(w)
		slices.SortFunc(got, func(a, b chat.SessionKey) int { return strings.Compare(a.Rest, b.Rest) })
		equal(w, "passing sessions "+when, got, want)
	}
	id := w.id("one")
	key := chat.SessionKey{Agent: "main", Rest: chat.PassingName(id)}
	others := []chat.SessionKey{{Agent: "main", Rest: "api:" + id}, {Agent: "main", Rest: "api:passing-x:" + id}}
	listed("at first", []chat.SessionKey{}...)
	for _, other := range others {
		c, run, _ := w.turn(node, other)
		w.finish(answered(c, run))
	}
	c, run, _ := w.turn(node, key)
	listed("while one runs", []chat.SessionKey{}...)
	w.finish(answered(c, run))
	listed("after its end", key)
	equal(w, "within the last hour", len(try(w.st.Passed(w.ctx, time.Hour, 100)).ok(w)), 0)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	listed("after its deletion", []chat.SessionKey{}...)
}

func filesInUse(w *world) {
	node, key := w.node(), w.key()
	inUse := func(when string, want ...string) {
		w.Helper()
		got := try(w.st.FilesInUse(w.ctx)).ok(w)
		slices.Sort(got)
		equal(w, "files in use "+when, slices.Compact(got), want)
	}
	inUse("at first")
	p := w.message(node, key)
	p.Message.Content.Attachments = []chat.Attachment{{Name: "a", Path: "in/1.png"}, {Name: "gone"}, {Name: "b", Path: "in/\"2\".txt"}}
	a := w.accept(p)
	plain, b := w.acceptText(node, key)
	inUse("while the message waits", "in/\"2\".txt", "in/1.png")
	c := claimOf(key, a)
	w.start(c, plain, a.Seq, b.Seq)
	inUse("while it runs", "in/\"2\".txt", "in/1.png")
	end := answered(c, plain)
	for n, path := range []string{"", "out/1", "out/2"} {
		o := store.Outgoing{N: n, Session: key, Kind: store.KindReply, Text: path, Target: chat.Target{Channel: "web", ChatID: path}}
		if path != "" {
			o.File = &chat.Attachment{Name: "f", Path: path}
		}
		end.Outgoing = append(end.Outgoing, o)
	}
	w.finish(end)
	inUse("after the answer", "out/1", "out/2")
	rows := w.claim(node)
	equal(w, "claimed", len(rows), 3)
	inUse("while they are sent", "out/1", "out/2")
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: rows[1].ID, ProviderID: "p"})).ok(w)
	inUse("after the first was delivered", "out/2")
	w.undelivered(store.UndeliveredParams{Node: node, ID: rows[2].ID, Error: "no", Permanent: true})
	inUse("after the second failed")
}

// uuid is an id as the gateway gives it to a sub-turn.
func (w *world) uuid() string { return fmt.Sprintf("0194f7c2-9d0e-7c3a-8f21-%012d", w.ids.Add(1)) }

// aside runs one turn in a session, whose transcript then contains a needle.
func (w *world) aside(node string, key chat.SessionKey) string {
	w.Helper()
	c, run, _ := w.turn(node, key)
	p := answered(c, run)
	p.Transcript = []chat.TranscriptEntry{{RunID: run, Role: chat.RoleAssistant, Text: "needle of " + key.Rest}}
	w.finish(p)
	return run
}

func oldSideTurnsGo(w *world) {
	node := w.node()
	old := []chat.SessionKey{chat.TaskKey("main", w.uuid()), chat.TaskKey("main", w.uuid()), chat.CompactionKey("main", w.uuid())}
	var gone []string
	for _, key := range old {
		gone = append(gone, w.aside(node, key))
		w.ok(w.st.PutAgentSession(w.ctx, key, chat.AgentSession{ID: "a"}))
	}
	named := []chat.SessionKey{{Agent: "main", Rest: "task:garden"}, {Agent: "main", Rest: "x:" + chat.TaskKey("main", w.uuid()).Rest}, {Agent: "main", Rest: "Task:" + w.uuid()}, w.key()}
	for _, key := range named {
		w.aside(node, key)
	}
	goesOn, young := chat.CompactionKey("main", w.uuid()), chat.TaskKey("main", w.uuid())
	w.aside(node, goesOn)
	w.index()
	w.clock.advance(time.Second)
	border := w.clock.now()
	w.aside(node, goesOn)
	w.aside(node, young)
	equal(w, "one piece", w.pruneSessionsOnce(border, 1), 1)
	equal(w, "the rest", w.pruneAll(store.PruneSessions, border, 1), 2)
	for i, key := range old {
		w.isGone(gone[i])
		try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	}
	equal(w, "sessions of agents", len(w.h.Query(w.tb, `SELECT 1 FROM agent_sessions`)), 0)
	for _, key := range append(named, goesOn, young) {
		w.session(key)
	}
	equal(w, "found", len(w.search("needle", store.SearchQuery{}).Hits), len(named)+3)
	if n := w.indexed(); n > int64(len(named)+1) {
		w.Fatalf("%d entries are left in the index", n)
	}
	before := w.session(goesOn)
	w.clock.advance(time.Second)
	equal(w, "later", w.pruneAll(store.PruneSessions, w.clock.now(), many), 2)
	c, run, seq := w.turn(node, goesOn)
	equal(w, "number of the next message of a conversation's compactions", seq, before.LastSeq+1)
	if c.Epoch <= before.Epoch {
		w.Fatalf("the epoch %d is used again, it was %d", c.Epoch, before.Epoch)
	}
	w.finish(answered(c, run))
	w.checkInvariants("after the sessions have gone")
}

// neededSideTurnsStay covers running sessions, unannounced ones, and the tasks of a running tree.
func neededSideTurnsStay(w *world) {
	node, key := w.node(), w.key()
	c, parent, _ := w.turn(node, key)
	p := w.spawn(c, parent, parent)
	p.Announce = true
	p.Accept.Message.Session = chat.TaskKey("main", w.uuid())
	a, id := w.spawned(p), p.Accept.Message.ID
	prune := func(when string, want int) {
		w.Helper()
		w.clock.advance(time.Second)
		equal(w, when, w.pruneAll(store.PruneSessions, w.clock.now(), many), want)
	}
	prune("while the task waits", 0)
	child := claimOf(p.Accept.Message.Session, a)
	w.start(child, id, a.Seq)
	prune("while it runs", 0)
	w.finish(answered(child, id))
	prune("while its parent runs", 0)
	w.finish(answered(c, parent))
	prune("while its end is not announced", 0)
	w.ok(w.st.Announced(w.ctx, id))
	prune("when all of that has ended", 1)
	equal(w, "tasks", len(w.tasks(store.TaskFilter{ID: id})), 0)
	w.checkInvariants("after the task has gone")
}

func (w *world) pruneSessionsOnce(before time.Time, limit int) int {
	w.Helper()
	return try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneSessions, Before: before, Limit: limit})).ok(w)
}
