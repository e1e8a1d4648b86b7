package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"laneway/internal/wire"
	"laneway/internal/words"
)

type sessionsCmd struct {
	List   sessionsList   `cmd:"" help:"List sessions, newest first."`
	Show   sessionsShow   `cmd:"" help:"Show one session and its last messages."`
	Search sessionsSearch `cmd:"" help:"Search messages."`
	Reset  sessionsReset  `cmd:"" help:"Stop all work of a session and start an empty conversation."`
	Stop   sessionsStop   `cmd:"" help:"Stop the oldest running turn of a session, or everything."`

	Delete sessionsDelete `cmd:"" help:"Stop all work of a session and delete its conversations."`
}

type sessionsList struct {
	clientFlags
	Limit  int    `help:"How many, 1 to 200." default:"50"`
	Offset int    `help:"How many to skip." default:"0"`
	Agent  string `help:"Only sessions of this agent." placeholder:"ID" complete:"agents"`
	Search string `help:"Only keys that contain this text." placeholder:"TEXT"`
	All    bool   `help:"Include sessions of job runs and tasks."`
	JSON   bool   `help:"Print JSON."`
}

// updatedAt returns when a session last changed; 0 = it does not exist yet.
func updatedAt(s wire.SessionRow) int64 {
	if s.UpdatedAt == nil {
		return 0
	}
	return *s.UpdatedAt
}

// Run lists sessions.
func (c *sessionsList) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 200 || c.Offset < 0 {
		return usageError("--limit must be between 1 and 200, and --offset 0 or more")
	}
	params := map[string]any{"hideCronRuns": !c.All}
	if c.Agent != "" {
		params["agentId"] = c.Agent
	}
	if c.Search != "" {
		params["search"] = c.Search
	}
	conn := c.gateway(env)
	got, err := listing{method: "sessions.list", member: "sessions", params: params, offset: c.Offset, limit: c.Limit}.read(ctx, conn)
	if err != nil {
		return err
	}
	if len(got.members) == 0 {
		if err := checkAgent(ctx, conn, c.Agent); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, got.reply)
	}
	if err := c.print(env, got); err != nil || c.All {
		return err
	}
	return c.hidden(ctx, env, conn, params)
}

// hidden says how many sessions the list left out, and how to see them.
func (*sessionsList) hidden(ctx context.Context, env *environment, conn gatewayConn, params map[string]any) error {
	var totals [2]wire.SessionsListResult
	for i, hide := range []bool{true, false} {
		params["hideCronRuns"], params["limit"] = hide, 1
		if err := conn.Call(ctx, "sessions.list", params, &totals[i]); err != nil {
			return err
		}
	}
	switch n := totals[1].TotalCount - totals[0].TotalCount; {
	case totals[0].TotalIsLowerBound:
		env.note("sessions of job runs and tasks are not listed (--all)")
	case n > 0:
		env.note(counted(n, totals[1].TotalIsLowerBound) + " not listed, of job runs and tasks (--all)")
	}
	return nil
}

// checkSession returns an error for a session that does not exist; "" = all. A session that was
// deleted may still have runs and messages, so the check is made only when none was found.
func checkSession(ctx context.Context, conn gatewayConn, key string) error {
	if key == "" {
		return nil
	}
	_, err := findSession(ctx, conn, key)
	return err
}

// checkAgent returns an error for an agent that the gateway does not have. An agent that was
// removed may still have sessions and jobs, so the check is made only when none was found.
func checkAgent(ctx context.Context, conn gatewayConn, id string) error {
	if id == "" {
		return nil
	}
	var list wire.AgentsListResult
	if err := conn.Call(ctx, "agents.list", map[string]any{}, &list); err != nil {
		return err
	}
	var names []string
	for _, a := range list.Agents {
		if a.ID == id {
			return nil
		}
		names = append(names, oneLine(a.ID))
	}
	return fmt.Errorf("there is no agent %s; the agents are %s%s", oneLine(id), strings.Join(names, ", "), oneLine(words.Meant(id, names)))
}

func (c *sessionsList) print(env *environment, got listed) error {
	var sessions []wire.SessionRow
	if err := got.into(&sessions); err != nil {
		return fmt.Errorf("the list of sessions cannot be read: %w", err)
	}
	rows := [][]string{{"KEY", "STATUS", "WAITING", "LANE", "UPDATED", "LAST ANSWER"}}
	for _, s := range sessions {
		rows = append(rows, []string{
			env.cell(s.Key, 60), cell(s.Status, 10), strconv.Itoa(s.QueueDepth), cell(s.Lane, 10), ago(env.now(), updatedAt(s)), env.cell(s.LastMessagePreview, 50),
		})
	}
	return errors.Join(env.table(rows), got.more(env, "sessions"))
}

type sessionsShow struct {
	clientFlags
	Key   string `arg:"" help:"Session key." complete:"sessions"`
	Limit int    `help:"How many messages, 1 to 1000." default:"20"`
	JSON  bool   `help:"Print JSON."`
}

// Run shows the session's row and the end of its transcript.
func (c *sessionsShow) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return usageError("--limit must be between 1 and 1000")
	}
	conn := c.gateway(env)
	described, err := findSession(ctx, conn, c.Key)
	if err != nil {
		return err
	}
	var history wire.HistoryPage[wire.HistoryMessage]
	if err := conn.Call(ctx, "chat.history", wire.ChatHistoryParams{SessionKey: c.Key, Limit: new(int64(c.Limit)), MaxChars: new(int64(mostChars))}, &history); err != nil {
		return err
	}
	for i := range history.Messages {
		if err := completeMessage(ctx, conn, c.Key, &history.Messages[i]); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"session": described, "messages": history.Messages, "totalMessages": history.TotalMessages})
	}
	return c.print(env, *described, history)
}

// mostChars is how many characters of a message the gateway sends at once.
const mostChars = 500_000

// completeMessage reads the rest of a message whose text is cut.
func completeMessage(ctx context.Context, conn gatewayConn, key string, m *wire.HistoryMessage) error {
	if m.NextChar == 0 || len(m.Content) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString(strings.TrimSuffix(m.Content[0].Text, "..."))
	for next := m.NextChar; next > 0; {
		var page wire.HistoryPage[wire.HistoryMessage]
		if err := conn.Call(ctx, "chat.history", wire.ChatHistoryParams{SessionKey: key, Seq: &m.Seq, FromChar: next, MaxChars: new(int64(mostChars))}, &page); err != nil {
			return err
		}
		if len(page.Messages) == 0 { // deleted meanwhile
			break
		}
		text.WriteString(page.Messages[0].Text())
		next = page.Messages[0].NextChar
	}
	m.Content[0].Text, m.NextChar = text.String(), 0
	return nil
}

// findSession returns the row of an existing session.
func findSession(ctx context.Context, conn gatewayConn, key string) (*wire.SessionRow, error) {
	var described wire.SessionsDescribeResult
	if err := conn.Call(ctx, "sessions.describe", map[string]any{"key": key}, &described); err != nil {
		return nil, err
	}
	if described.Session == nil {
		return nil, missingSession(ctx, conn, key)
	}
	return described.Session, nil
}

// missingSession is the error for a session that does not exist; its key may be given without its
// agent.
func missingSession(ctx context.Context, conn gatewayConn, key string) error {
	var keys, short []string
	got, err := listing{method: "sessions.list", member: "sessions", params: map[string]any{}, limit: pageSize}.read(ctx, conn)
	var sessions []wire.SessionRow
	if err == nil && got.into(&sessions) == nil {
		for _, s := range sessions {
			keys = append(keys, s.Key)
			if strings.HasSuffix(s.Key, ":"+key) {
				short = []string{s.Key}
			}
		}
	}
	if len(short) == 1 {
		return fmt.Errorf("there is no session %s; see laneway sessions list; did you mean %s?", oneLine(key), oneLine(short[0]))
	}
	return missing("session", key, "laneway sessions list", keys)
}

func (c *sessionsShow) print(env *environment, s wire.SessionRow, history wire.HistoryPage[wire.HistoryMessage]) error {
	rows := [][]string{
		{"key", cell(s.Key, 512)},
		{"status", cell(s.Status, 20) + ", waiting " + strconv.Itoa(s.QueueDepth) + ", mode " + cell(s.EffectiveQueueMode, 20) + ", lane " + cell(s.Lane, 20)},
		{"running", cell(strings.Join(s.ActiveRunIDs, " "), 200)},
		{"created", ago(env.now(), s.CreatedAt)},
		{"messages", strconv.Itoa(history.TotalMessages)},
	}
	if s.LastRunError != "" {
		rows = append(rows, []string{"last error", cell(s.LastRunError, 200)})
	}
	if err := env.table(rows); err != nil {
		return err
	}
	return printMessages(env, history.Messages)
}

// writerOf names who wrote a message: what wrote it from another conversation, or its role.
func writerOf(m wire.HistoryMessage) string {
	if m.Origin != nil {
		return m.Origin.Who
	}
	return m.Role
}

func printMessages(env *environment, messages []wire.HistoryMessage) error {
	for _, m := range messages {
		at := time.UnixMilli(m.Timestamp).Local().Format("2006-01-02 15:04:05")
		if err := env.print("\n%s  %s\n%s\n", at, cell(writerOf(m), 40), plain(m.Text())); err != nil {
			return err
		}
	}
	return nil
}

type sessionsReset struct {
	clientFlags
	Key  string `arg:"" help:"Session key." complete:"sessions"`
	JSON bool   `help:"Print JSON."`
}

// Run resets the session.
func (c *sessionsReset) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	if _, err := findSession(ctx, conn, c.Key); err != nil {
		return err
	}
	var raw json.RawMessage
	if err := conn.Call(ctx, "sessions.reset", map[string]any{"key": c.Key, "reason": "reset"}, &raw); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	return env.print("%s was reset\n", oneLine(c.Key))
}

type sessionsDelete struct {
	clientFlags
	Key      string `arg:"" help:"Session key." complete:"sessions"`
	Branches bool   `help:"Also delete sessions that branched from it; otherwise they keep the messages they share."`
	Yes      bool   `help:"Don't ask. Required without a terminal."`
	JSON     bool   `help:"Print JSON."`
}

// Run deletes the session after a confirmation.
func (c *sessionsDelete) Run(ctx context.Context, env *environment) error {
	if !c.Yes {
		if env.terminal == nil {
			return usageError("laneway sessions delete asks a question, and this is not a terminal; add --yes")
		}
		what := c.Key + " with its transcripts"
		if c.Branches {
			what += " and the sessions that have branched off it"
		}
		if err := env.confirm("Delete the session "+what+"?", "nothing was deleted"); err != nil {
			return err
		}
	}
	conn := c.gateway(env)
	var done wire.SessionsDeleteResult
	if err := conn.Call(ctx, "sessions.delete", wire.SessionsDeleteParams{Key: c.Key, DeleteBranches: c.Branches}, &done); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, done)
	}
	if !done.Deleted {
		return missingSession(ctx, conn, c.Key)
	}
	return env.print("%s is deleted\n", oneLine(c.Key))
}

type sessionsStop struct {
	clientFlags
	Key  string `arg:"" help:"Session key." complete:"sessions"`
	Only string `help:"Only this run." placeholder:"ID" name:"run" xor:"what"`
	All  bool   `help:"Stop all running and waiting work." xor:"what"`
	JSON bool   `help:"Print JSON."`
}

// Run stops the named runs or all.
func (c *sessionsStop) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	only, err := wholeRun(ctx, conn, c.Only)
	if err != nil {
		return err
	}
	var result wire.ChatAbortResult
	if err := conn.Call(ctx, "chat.abort", wire.ChatAbortParams{SessionKey: c.Key, RunID: only, All: c.All}, &result); err != nil {
		return err
	}
	switch {
	case c.JSON:
		return printJSON(env.stdout, result)
	case !result.Aborted:
		if _, err := findSession(ctx, conn, c.Key); err != nil {
			return err
		}
		return env.print("nothing to stop in %s\n", oneLine(c.Key))
	default:
		return env.print("stopped %s\n", cell(strings.Join(result.RunIDs, " "), 400))
	}
}

type sessionsSearch struct {
	clientFlags
	Query   []string      `arg:"" help:"The words; a message must contain all of them."`
	Session string        `help:"Only this session." placeholder:"KEY"`
	Agent   string        `help:"Only sessions of this agent." placeholder:"ID"`
	Since   time.Duration `help:"Only messages of this last period, such as 720h." placeholder:"DURATION"`
	Until   string        `help:"Only messages up to this time, to go further back." placeholder:"TIME"`
	Limit   int           `help:"How many, 1 to 100." default:"20"`
	JSON    bool          `help:"Print JSON."`
}

// Run searches the transcripts.
func (c *sessionsSearch) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 100 || c.Since < 0 {
		return usageError("--limit must be between 1 and 100, and --since must not be negative")
	}
	params := wire.SessionsSearchParams{Query: strings.Join(c.Query, " "), Key: c.Session, AgentID: c.Agent, Limit: new(int64(c.Limit))}
	if c.Since > 0 {
		params.SinceMs = new(env.now().Add(-c.Since).UnixMilli())
	}
	if c.Until != "" {
		until, err := time.Parse(time.RFC3339Nano, c.Until)
		if err != nil {
			return usageError("--until is a time like 2026-03-14T15:00:00Z")
		}
		params.UntilMs = new(until.UnixMilli())
	}
	conn := c.gateway(env)
	var found wire.SessionsSearchResult
	if err := conn.Call(ctx, "sessions.search", params, &found); err != nil {
		return err
	}
	if len(found.Hits) == 0 {
		if err := errors.Join(checkAgent(ctx, conn, c.Agent), checkSession(ctx, conn, c.Session)); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, found)
	}
	return c.print(env, found)
}

func (*sessionsSearch) print(env *environment, found wire.SessionsSearchResult) error {
	for _, h := range found.Hits {
		at := time.UnixMilli(h.Timestamp).Local().Format("2006-01-02 15:04:05")
		if err := env.print("%s  %s  %s\n    %s\n", at, cell(h.SessionKey, 512), cell(h.Role, 12), oneLine(h.Excerpt)); err != nil {
			return err
		}
	}
	switch {
	case found.NextUntilMs != nil:
		back := time.UnixMilli(*found.NextUntilMs).UTC().Format(time.RFC3339Nano)
		return env.print("there may be older ones; continue with --until %s\n", back)
	case len(found.Hits) == 0:
		return env.printLine("no message has these words")
	}
	return nil
}

type tocCmd struct {
	clientFlags
	Level   string `arg:"" optional:"" help:"day, week or month." enum:"day,week,month" default:"day"`
	Session string `help:"Only this session; with day." placeholder:"KEY"`
	From    string `help:"The first period, such as 2026-03-14, 2026-W11 or 2026-03." placeholder:"PERIOD"`
	To      string `help:"The last period." placeholder:"PERIOD"`
	Limit   int    `help:"How many, 1 to 100." default:"20"`
	Offset  int    `help:"How many of the newest to skip."`
	JSON    bool   `help:"Print JSON."`
}

// Run lists summaries.
func (c *tocCmd) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 100 || c.Offset < 0 {
		return usageError("--limit must be between 1 and 100, and --offset must not be negative")
	}
	params := wire.TocListParams{Level: c.Level, Key: c.Session, From: c.From, To: c.To, Limit: new(int64(c.Limit)), Offset: int64(c.Offset)}
	conn := c.gateway(env)
	var found wire.TocListResult
	if err := conn.Call(ctx, "toc.list", params, &found); err != nil {
		return err
	}
	if len(found.Nodes) == 0 {
		if err := checkSession(ctx, conn, c.Session); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, found)
	}
	return c.print(env, found)
}

func (*tocCmd) print(env *environment, found wire.TocListResult) error {
	for _, n := range found.Nodes {
		where, stale := n.SessionKey, ""
		where = cmp.Or(where, n.Principal)
		if n.Stale {
			stale = "  (messages came since)"
		}
		if err := env.print("%s  %s%s\n    %s\n", n.Period, cell(where, 512), stale, oneLine(n.Text)); err != nil {
			return err
		}
	}
	switch {
	case found.NextOffset != nil:
		return env.print("there may be others; continue with --offset %d\n", *found.NextOffset)
	case len(found.Nodes) == 0:
		return env.printLine("there are no summaries")
	}
	return nil
}
