package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/events"
	"laneway/internal/retry"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// statusWait limits the queries of Status and Ready.
const statusWait = time.Second

// health says what this process does, and whether it works. [Dispatcher] embeds it.
type health struct {
	*parts

	receiver  *receiver
	admission *admission
	figures   *figures
	started   time.Time
}

// Lanes returns a snapshot of the scheduler.
func (h *health) Lanes() chat.LanesStatus {
	st := h.sched.Stats()
	out := chat.LanesStatus{
		At: time.Now(), NodeID: h.node.ID(), Draining: h.node.Draining(), UnknownLaneFallbacks: signed(st.UnknownLanes),
		Tracked: st.Sessions.Tracked, Running: st.Sessions.Running, Waiting: st.Sessions.Waiting, Debounced: st.Sessions.Debouncing, Stuck: st.Sessions.Stuck,
		DropsOld: h.receiver.queue.drops.Load(), DropsNew: h.receiver.refused.Load(), Stale: h.receiver.queue.stale.Load(), Cleared: signed(st.Cleared),
	}
	for _, l := range st.Lanes {
		out.Lanes = append(out.Lanes, chat.LaneStatus{
			Name: l.Name, Capacity: l.Capacity, Active: l.Active, Stopping: l.Stopping, Yielded: l.Yielded, Waiting: l.Ready, OldestWait: l.OldestWait,
			Started: signed(l.Started), Finished: signed(l.Finished), Failed: signed(l.Failed), Canceled: signed(l.Cancelled),
		})
	}
	return out
}

// Progress reports whether work progresses. It does not block.
func (h *health) Progress() chat.Progress {
	p := chat.Progress{
		StalledFor:    h.sched.Progress(),
		DispatcherAge: h.node.SweepAge(),
		CronAge:       h.jobs.Age(), WriterAge: -1,
	}
	if w, ok := h.store.(store.OneWriter); ok {
		p.WriterAge = w.WriterAge()
	}
	return p
}

// Ready returns why this process should receive no work; nil = it is ready.
func (h *health) Ready(ctx context.Context) error {
	if h.node.Draining() {
		return &chat.NotReadyError{Check: chat.CheckDraining, Cause: chat.ErrDraining}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, statusWait, errors.New("the database did not answer within a second"))
	defer cancel()
	if err := h.store.Ping(ctx); err != nil {
		return &chat.NotReadyError{Check: checkOf(err), Cause: err}
	}
	if err := h.receiver.writes.fault(); err != nil {
		return &chat.NotReadyError{Check: checkOf(err), Cause: err}
	}
	if _, err := h.node.Alive(); err != nil {
		return &chat.NotReadyError{Check: chat.CheckDatabase, Cause: err}
	}
	if err := h.admission.diskFault(); err != nil {
		return &chat.NotReadyError{Check: chat.CheckDisk, Cause: err}
	}
	return nil
}

// checkOf returns the readiness check to which an error of the store belongs.
func checkOf(err error) chat.Check {
	if errors.Is(err, store.ErrSchema) {
		return chat.CheckMigrations
	}
	return chat.CheckDatabase
}

// Status returns a snapshot of this gateway. It works even when the database is unavailable.
func (h *health) Status(ctx context.Context) chat.SystemStatus {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	s := chat.SystemStatus{
		NodeID: h.node.ID(), BootID: h.cfg.BootID, Version: h.cfg.Version, StartedAt: h.started, Draining: h.node.Draining(),
		Store: h.store.Kind(), Lanes: h.Lanes(), Progress: h.Progress(),
		DiskLow: h.admission.diskFault() != nil, Stranded: slices.Concat(h.figures.current().AgentMissing, h.figures.current().TakenWords),
	}
	if hold := h.node.Hold(); hold != nil {
		s.Held = hold.Sentence()
	}
	asked := time.Now()
	unreachable := h.store.Ping(ctx)
	s.StoreLatency = time.Since(asked)
	if err := cmp.Or(unreachable, h.receiver.writes.fault()); err != nil {
		s.StoreError = chat.SentenceOf(err)
	}
	counts := map[string]store.OutboxCount{}
	var cluster store.Cluster
	if unreachable == nil {
		cluster, _ = h.store.Cluster(ctx)     // a picture: what cannot be read is left out
		counts, _ = h.store.OutboxCounts(ctx) // as above
	}
	s.Nodes, s.Gone = cluster.Nodes, cluster.Gone
	for _, st := range h.Channels() {
		c := counts[st.Name]
		st.OutboxWaiting, st.OutboxFailed, st.OutboxMaybeSent, st.OldestWaiting = c.Waiting, c.Failed, c.MaybeSent, c.Oldest
		st.LastFailed = c.FailedAt
		s.OutboxWaiting, s.OutboxFailed = s.OutboxWaiting+c.Waiting, s.OutboxFailed+c.Failed
		s.Channels = append(s.Channels, st)
		delete(counts, st.Name)
	}
	s.Stranded = append(s.Stranded, h.unserved(counts, cluster.Leases)...)
	for _, a := range h.cfg.Agents {
		if host, ok := a.Runner.(agent.Host); ok {
			p := host.Processes()
			s.Programs = append(s.Programs, chat.ProgramStatus{Agent: a.Info.ID, Processes: p.Living, Limit: p.Most, Memory: p.Memory, Evicted: p.Evicted})
		}
	}
	return s
}

// unserved names the accounts with waiting messages for which no live process sends. counts are
// those of channels that this process does not have.
func (h *health) unserved(counts map[string]store.OutboxCount, leases map[string]bool) []string {
	maps.DeleteFunc(counts, func(_ string, c store.OutboxCount) bool { return c.Waiting == 0 })
	if leases == nil || h.node.Hold() != nil { // a held gateway sends nothing, and the hold is reported separately
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !leases[name] {
			all = append(all, fmt.Sprintf("channel %s: %s to be sent, and no running gateway has it: start a gateway with this account", name, store.CountWaiting(counts[name].Waiting, "message")))
		}
	}
	return all
}

// Channels returns a snapshot of the channels of this process, without their waiting messages. It
// does not block.
func (h *health) Channels() []chat.ChannelStatus {
	var all []chat.ChannelStatus
	for _, name := range h.channelNames() {
		cs := h.channels[name].Status()
		st := chat.ChannelStatus{
			Name: name, ID: chat.ChannelKind(name), AccountID: cs.Account, Label: cs.Label, Configured: cs.Configured, Running: cs.Running,
			Connected: cs.Connected, State: cs.State, Mode: cs.Mode, LastError: cs.LastError, LastPollAge: cs.LastPollAge,
		}
		if _, ok := h.node.Held(name); ok {
			st.PollOwner = h.node.ID()
		}
		all = append(all, st)
	}
	slices.SortStableFunc(all, func(a, b chat.ChannelStatus) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.AccountID, b.AccountID))
	})
	return all
}

// Alive returns nil while this process holds its lease in the store, see [ownership.Node.Alive]. It
// does not block.
func (h *health) Alive() error {
	_, err := h.node.Alive()
	return err
}

// signed converts a counter to the type of the protocol.
func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

const (
	figuresEvery = 15 * time.Second
	// figuresShare limits the cost of counting: after a count, this many times its duration pass
	// without one.
	figuresShare = 100
	// takenLong is longer than a row can be taken: the delivery of a file ends after seven minutes,
	// an allowed call after one.
	takenLong = 10 * time.Minute
	// figuresTime limits one count.
	figuresTime = 15 * time.Second
)

// Figures are counts of the store for metrics, as last read. They include all processes that share
// the store.
type Figures struct {
	OutboxWaiting int
	Cron          cron.Summary // OldestDue negative = nothing is due
	// AgentMissing describes work that waits for an agent that no live process has, one sentence
	// for each agent.
	AgentMissing []string
	// TakenLong counts the rows that a process has taken for longer than is possible, and
	// TakenWords describes them.
	TakenLong  int
	TakenWords []string
	// given are the agents among them that have been missing for [Config.AgentWait].
	given []string
}

// figures caches the counts, so that a scrape of the metrics needs no query.
type figures struct {
	*parts

	last atomic.Pointer[Figures]
	// left has, by agent, the work that the last count found without a live process, and warned the
	// agents that were logged. Only the loop uses them. since is when each agent was first missing.
	left   map[string]store.Unowned
	since  map[string]time.Time
	warned map[string]bool
	// taken has the rows that the last count found taken, with the time of the first count that
	// did. Only the loop uses it.
	taken map[store.TakenRow]time.Time
	has   takeover // what this process has in memory
}

// current does not block. Before the first count, everything is zero.
func (f *figures) current() Figures {
	if last := f.last.Load(); last != nil {
		return *last
	}
	return Figures{Cron: cron.Summary{OldestDue: -1}}
}

// run reads the figures periodically until ctx is done.
func (f *figures) run(ctx context.Context) {
	for {
		began := time.Now()
		f.read(ctx)
		if retry.Sleep(ctx, max(figuresEvery, figuresShare*time.Since(began))) != nil {
			return
		}
	}
}

// read reads the figures; a figure that cannot be read keeps its value.
func (f *figures) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, figuresTime)
	defer cancel()
	next := f.current()
	counts, err := f.store.OutboxCounts(ctx)
	if err == nil {
		next.OutboxWaiting = 0
		for _, c := range counts {
			next.OutboxWaiting += c.Waiting
		}
		next.Cron, err = f.store.Summary(ctx, "")
	}
	if err == nil {
		err = f.agentMissing(ctx, &next)
	}
	if err == nil {
		err = f.takenTooLong(ctx, &next)
	}
	if err != nil {
		f.log.DebugContext(ctx, "the figures of the store cannot be read; the last ones stay", "err", err)
		next.given = nil // a replica may have the agent now
	}
	f.last.Store(&next)
}

// takenTooLong finds rows that a process has taken for longer than is possible. Such a row blocks
// what comes after it until its process ends.
func (f *figures) takenTooLong(ctx context.Context, next *Figures) error {
	rows, err := f.store.TakenRows(ctx)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, f.inHand())
	now, before := time.Now(), f.taken
	f.taken = make(map[store.TakenRow]time.Time, len(rows))
	long := map[string]int{}
	next.TakenLong, next.TakenWords = 0, nil
	for _, row := range rows {
		since, seen := before[row]
		if !seen {
			since = now
		}
		f.taken[row] = since
		if now.Sub(since) >= takenLong {
			next.TakenLong++
			long[row.Kind+" by gateway "+row.Node]++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(long)) {
		words := fmt.Sprintf("%d × %s: taken for more than %s, which is longer than it can last; restart that gateway, then another attempt follows", long[what], what, command.DurationWords(takenLong))
		next.TakenWords = append(next.TakenWords, words)
		if !slices.Contains(f.current().TakenWords, words) {
			f.log.ErrorContext(ctx, "work has been taken for longer than it can last", "what", what, "rows", long[what])
		}
	}
	return nil
}

// inHand reports for a row whether its process works on it. This process knows that of its own
// turns and messages, and leaves those of others to them.
func (f *figures) inHand() func(store.TakenRow) bool {
	me, running := f.node.ID(), f.has.Running()
	return func(row store.TakenRow) bool {
		switch row.Kind {
		case store.TakenTurn:
			return row.Node != me || running[row.ID]
		case store.TakenMessage:
			return row.Node != me || f.has.Tracks(row.ID)
		}
		return false
	}
}

// given returns the agents that have been missing for too long.
func (f *figures) given() []string { return f.current().given }

// agentMissing lists the agents that no live process has and for which work waits. Two counts have
// to find an agent, because a process may restart between them. Each agent is logged once, until no
// work waits for it. The time restarts with this process, so that a gateway that starts first does
// not abandon the work of the next one.
func (f *figures) agentMissing(ctx context.Context, next *Figures) error {
	if f.node.Hold() != nil { // no process takes the work, and the hold is reported separately
		clear(f.left)
		clear(f.since)
		next.AgentMissing, next.given = nil, nil
		return nil
	}
	left, err := f.store.Unowned(ctx)
	if err != nil {
		return err
	}
	before := f.left
	f.left, next.AgentMissing, next.given = left, nil, nil
	for _, agent := range slices.Sorted(maps.Keys(left)) {
		if _, still := before[agent]; !still {
			f.since[agent] = time.Now()
			continue
		}
		n := left[agent]
		next.AgentMissing = append(next.AgentMissing, n.Sentence(agent)+": "+store.UnownedCure)
		if f.cfg.AgentWait > 0 && time.Since(f.since[agent]) >= f.cfg.AgentWait {
			next.given = append(next.given, agent)
		}
		if !f.warned[agent] {
			f.warned[agent] = true
			f.log.WarnContext(ctx, "work waits for an agent that no running gateway has", "agent", agent, "messages", n.Messages, "jobs", n.Jobs, "cure", store.UnownedCure)
		}
	}
	maps.DeleteFunc(f.warned, func(agent string, _ bool) bool {
		_, still := left[agent]
		return !still
	})
	return nil
}

// Channel names in the keys of sessions of hooks and of the OpenAI interface.
const (
	hookRoute = "hook"
	apiRoute  = "api"
)

// Names of session notes.
const (
	noteModel = "model"
	noteDir   = "dir"
)

// conversations reads what is stored of sessions and of their turns. [Dispatcher] embeds it.
type conversations struct {
	*parts

	queue     *queue
	questions *questions
}

// Session reads one session, if the principal visible may see it ("" = every principal).
func (c conversations) Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	s, err := c.store.Session(ctx, key, visible)
	if err != nil {
		return chat.SessionStatus{}, err
	}
	return c.sessionStatus(s), nil
}

// Sessions lists sessions with the state of their queues in this process.
func (c conversations) Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error) {
	list, total, err := c.store.ListSessions(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	out := make([]chat.SessionStatus, 0, len(list))
	for _, s := range list {
		out = append(out, c.sessionStatus(s))
	}
	return out, total, nil
}

func (c conversations) sessionStatus(s store.Session) chat.SessionStatus {
	st := chat.SessionStatus{
		Key: s.Key, SessionID: s.SessionID, Principal: s.Principal, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		LastMessageAt: s.LastMessageAt, LastRunID: s.LastRunID, LastError: s.LastError, LastPreview: s.Preview,
		TotalTokens: s.TotalTokens, ActiveRuns: slices.Clone(s.ActiveRuns), Mode: s.Mode, QueueDepth: s.Waiting, Lane: s.Lane,
	}
	if st.Mode == "" {
		st.Mode = chat.QueueMode(c.queue.configured(s.Key, channelOf(s.Key), &chat.Content{}).Mode)
	}
	if st.Lane == "" {
		st.Lane = scheduler.LaneMain
	}
	st.Status = statusWord(s)
	return st
}

// channelOf returns the channel whose rules apply to a session: the one in its key, or the web
// channel, which serves sessions with any name.
func channelOf(key chat.SessionKey) string {
	if name := key.Channel(); name != "" {
		return name
	}
	if name, _, ok := strings.Cut(key.Rest, ":"); ok && (name == cron.Channel || name == hookRoute || name == apiRoute) {
		return name
	}
	return channel.Web
}

func statusWord(s store.Session) string {
	switch {
	case len(s.ActiveRuns) > 0:
		return "running"
	case s.Waiting > 0:
		return "queued"
	}
	switch s.LastState {
	case store.RunOK:
		return "done"
	case store.RunStopped:
		return "killed"
	case "":
		return ""
	default:
		if s.LastCause == string(chat.FailTimeout) {
			return "timeout"
		}
		return "failed"
	}
}

// Audit adds a row to the audit log.
func (d *Dispatcher) Audit(ctx context.Context, a chat.Audit) error { return d.store.Audit(ctx, a) }

// Transcript reads a part of a conversation as people see it.
func (c conversations) Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	q.Shown = true
	return c.store.Transcript(ctx, q)
}

// FilesOfRuns lists the files that came with the messages of runs, by run and in the order of the
// messages.
func (c conversations) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error) {
	return c.store.FilesOfRuns(ctx, key, runs)
}

// Search finds entries of conversations.
func (c conversations) Search(ctx context.Context, q store.SearchQuery) (store.SearchResult, error) {
	return c.store.SearchTranscripts(ctx, q)
}

// PendingInputs lists messages that are accepted and not yet run.
func (c conversations) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) ([]store.Waiting, int, error) {
	return c.store.PendingInputs(ctx, key, after, limit)
}

// Tasks lists sub-turns of turns, newest first, see [store.Tasks].
func (c conversations) Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error) {
	return c.store.Tasks(ctx, f)
}

// Toc reads summaries of conversations.
func (c conversations) Toc(ctx context.Context, q store.TocQuery) ([]store.TocNode, error) {
	return c.store.Toc(ctx, q)
}

// Place finds an accepted message by its id, and its position in its session; chat.ErrNotFound.
func (c conversations) Place(ctx context.Context, messageID string) (chat.Place, error) {
	m, err := c.store.MessageByID(ctx, messageID)
	if err != nil {
		return chat.Place{}, fmt.Errorf("looking for a message: %w", err)
	}
	s, err := c.store.Session(ctx, m.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return chat.Place{}, chat.ErrNotFound
	}
	if err != nil {
		return chat.Place{}, fmt.Errorf("looking for the session of a message: %w", err)
	}
	return chat.Place{
		Session: m.Session, RunID: cmp.Or(m.RunID, m.MessageID), Newest: s.LastSeq == m.Seq, First: m.Seq == 1, Ended: m.State == store.StateDone,
		AcceptedAt: m.AcceptedAt,
	}, nil
}

// BranchAt returns the end of a run in the current transcript of its session, from which a new
// session may branch. chat.ErrNotFound: the transcript does not have the run. [chat.CodeLimit]: the
// conversation has reached the limit of branches.
func (c conversations) BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error) {
	own, err := c.store.Transcript(ctx, store.TranscriptQuery{Session: key, RunID: runID, Limit: 1, MaxChars: 1})
	switch {
	case err != nil:
		return chat.Branch{}, fmt.Errorf("looking for a run in its transcript: %w", err)
	case len(own.Entries) == 0:
		return chat.Branch{}, chat.ErrNotFound
	case own.Branches >= chat.MaxBranches:
		return chat.Branch{}, chat.Errorf(chat.CodeLimit, "this conversation has branched %d times, one branch off the other; begin a new one", chat.MaxBranches)
	}
	return chat.Branch{Session: key, SessionID: own.SessionID, Seq: own.Entries[0].Seq}, nil
}

// endAgentSession releases the agent's resources for a conversation that has ended, whichever
// process of the cluster ended it.
func (p *parts) endAgentSession(e chat.Event) {
	if e.Kind != chat.EventSession || (e.Reason != reasonReset && e.Reason != events.ReasonDeleted) {
		return
	}
	if host, ok := p.agents[e.Session.Agent].Runner.(agent.Host); ok {
		host.EndSession(e.Session)
	}
}

// writeHold is how long this process is not ready after the store refused a message. It is limited,
// because a process that is not ready receives no messages and would never recover otherwise.
const writeHold = 10 * time.Second

// writeRecord records whether the store accepted the last message. A database whose disk is full,
// or that refuses a table, answers reads and connection checks; only the refusal of a message shows
// it.
type writeRecord struct{ failed atomic.Pointer[failedWrite] }

type failedWrite struct {
	err error // nil = fewer than defects errors
	at  time.Time
	// defects are the times of the last errors that are not refusals, oldest first.
	defects []time.Time
}

// defects is how many errors without a known cause within writeHold make a process not ready. One
// may be the fault of a message.
const defects = 3

// errDefects is the state after them. Their causes are in the log.
var errDefects = chat.Errorf(chat.CodeStoreUnavailable, "the store refused the last %d messages with an internal error, which the log has", defects)

// note records the result of an Accept. Refusals of the message itself are ignored.
func (w *writeRecord) note(err error) {
	last, now := w.failed.Load(), time.Now()
	switch {
	case err == nil:
		if last != nil {
			w.failed.Store(nil)
		}
	case errors.Is(err, chat.ErrStoreUnavailable):
		w.failed.Store(&failedWrite{err: err, at: now})
	case chat.CodeOf(err) == chat.CodeInternal && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		next := failedWrite{at: now, defects: []time.Time{now}}
		if last != nil { // a concurrent call may replace it, and the next error counts again
			next.defects = append(slices.Clone(last.defects[max(0, len(last.defects)-defects+1):]), now)
		}
		if len(next.defects) == defects && now.Sub(next.defects[0]) <= writeHold {
			next.err = errDefects
		}
		w.failed.Store(&next)
	}
}

// fault returns the refusal of the last message; nil when it was stored, or when the refusal is
// older than writeHold.
func (w *writeRecord) fault() error {
	last := w.failed.Load()
	if last == nil || time.Since(last.at) > writeHold {
		return nil
	}
	return last.err // nil while there are too few
}
