// Package sqlstore holds the operations of the store, each written once for both engines.
//
// An operation reads and locks rows, decides in Go, and writes. Rules that need no database are
// functions of the packages cron and store; this package loads, calls and writes. The statements
// are next to the code that uses them. They are PostgreSQL's SQL with a few marks for the
// differences of SQLite, see [Dialect]. Where the engines need different statements, both are next
// to each other (Tx.PerEngine).
//
// An [Engine] implements connections, transactions, locks and files. It is independent of messages
// and jobs. Both engines have the same tables and columns. Times are integer milliseconds, booleans
// are booleans or 0 and 1, JSON is text.
//
// Concurrent operations of the same kind share a transaction, see group: one transaction reads and
// locks for all of them, decides in Go, and writes. Statements whose rows are not needed
// immediately are sent together (Tx.Later), so a transaction has as many round trips as decisions.
//
// The engine may run a whole Update again after a conflict. Transactions on PostgreSQL run
// concurrently: an operation that counts and then adds locks the row, or the name (lockName), that
// its count depends on. SQLite has one writer, so there the marks for locks are empty. Rows that a
// statement selects with a limit are in a WITH … AS MATERIALIZED, because PostgreSQL may evaluate a
// subquery again for each row of the outer one.
package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Store combines the operations, which are written once. An engine's store embeds it.
type Store struct {
	Access
	Calls
	Contents
	Cron
	History
	AgentSessions
	Holds
	Inbox
	Inspection
	Journal
	Nodes
	Outbox
	Questions
	Ratios
	Retention
	Search
	Sessions
	SubTurns
	Usage
}

// New returns the operations on an engine.
func New(db Engine) Store {
	jobs := newCron(db)
	inbox := newInbox(db, jobs)
	return Store{
		Access: Access{db}, AgentSessions: AgentSessions{db}, Calls: Calls{db}, Contents: Contents{db}, Cron: jobs, History: History{db}, Holds: Holds{db, jobs}, Inbox: inbox,
		Inspection: Inspection{db, inbox}, Journal: Journal{db}, Nodes: Nodes{db}, Outbox: Outbox{db, jobs}, Questions: Questions{db}, Ratios: Ratios{db},
		Retention: Retention{db}, Search: Search{db: db}, Sessions: Sessions{db}, SubTurns: SubTurns{db}, Usage: Usage{db},
	}
}

// Engine is a database that runs the operations of this package.
type Engine interface {
	// View runs see outside of a transaction, with a reader that no list can take. On SQLite all
	// its statements read one state of the database; on PostgreSQL each statement reads its own.
	View(ctx context.Context, doing string, see func(ctx context.Context, tx Tx) error) error
	// List is a View of a list, whose cost grows with the rows. Lists of principals are admitted by
	// [store.Lists]; they must not be nested.
	List(ctx context.Context, doing string, see func(ctx context.Context, tx Tx) error) error
	// Snapshot is a List whose statements all read one state of the database. On PostgreSQL it is a
	// transaction that may have settings.
	Snapshot(ctx context.Context, doing string, see func(ctx context.Context, tx Tx) error) error
	// Update runs change in one transaction, which is committed when change returns nil. The engine
	// may run change again after a conflict. It may also run change after Update has returned
	// because ctx has ended, so change owns its inputs and modifies nothing but the database, see
	// result. Errors of change are returned unchanged when they are of type *chat.Error; all others
	// are wrapped with doing.
	Update(ctx context.Context, doing string, change func(ctx context.Context, tx Tx) error) error
	// Control is an Update that never waits for those of turns and messages.
	Control(ctx context.Context, line Line, doing string, change func(ctx context.Context, tx Tx) error) error
	// Turn is an Update of the life of messages.
	Turn(ctx context.Context, doing string, share Share, change func(ctx context.Context, tx Tx) error) error
	// Poll is a periodic Update that queries due work. The engine may skip it when it can find
	// nothing, see [store.Gate].
	Poll(ctx context.Context, p store.Poll, look func(ctx context.Context, tx Tx) (Rest, error)) (*Rested, error)
}

// Batcher is an engine that itself runs concurrent operations in one transaction. For other engines
// a group does so, see [together].
type Batcher interface {
	// Batch is a Turn of an operation that may run together with others of its kind.
	Batch(ctx context.Context, doing string, op Batched) error
}

// Batched is an operation that may run together with others of its kind. When a run returns an
// error, the transaction keeps none of its writes.
type Batched interface {
	// Name is what the operation locks. One run has at most one operation per name.
	Name() string
	// Kind is the same for operations that may run together.
	Kind() any
	// Run runs the operation alone.
	Run(ctx context.Context, tx Tx) error
	// RunAll runs operations of this kind and returns which of them it completed. The rest have
	// written nothing, and must run alone.
	RunAll(ctx context.Context, tx Tx, ops []Batched) (done []bool, err error)
}

// Share is how an operation uses its transaction.
type Share int

// The shares.
const (
	Alone  Share = iota // as in an Update
	Again               // as Alone, after a transaction with an unknown commit, see Tx.Repeated
	Shared              // with others: it is tried once, and an error wraps [ErrUnknown] when it may have been committed
)

// Line identifies operations that wait only for each other.
type Line int

// The lines. A stop may wait for a lock, and a heartbeat must not wait for a stop.
const (
	Beat Line = iota // heartbeats
	Stop             // stops, and the check whether the database responds
)

// Tx runs statements. A statement is written once for both engines, see [Dialect]; $1, $2 … are its
// arguments. An argument of type [Set] is the row set of a statement that declares one, and is the
// last argument. Strings may have any content: the engine removes what its database cannot store.
type Tx interface {
	// Exec returns the number of changed rows.
	Exec(ctx context.Context, text string, args ...any) (int64, error)
	// Query calls scan for each row in order, until scan returns an error; [ErrEnough] ends the
	// iteration without an error.
	Query(ctx context.Context, text string, scan func(Row) error, args ...any) error
	// Later queues a statement, which runs in the same transaction before the next Exec or Query,
	// or at the end. On PostgreSQL queued statements are sent together, the first with the BEGIN
	// and the last with the COMMIT. Scan then reads the rows; nil discards them. At the end of the
	// transaction scan must not return an error: the transaction may already be committed.
	Later(ctx context.Context, text string, scan func(Row) error, args ...any) error
	// Repeated reports that an earlier try of this change may have been committed although its
	// result was lost.
	Repeated() bool
	// Now is the store's clock in milliseconds. Within an Update it is constant, and {now} has the
	// same value.
	Now(ctx context.Context) (int64, error)
	// PerEngine returns the statement for the engine of this transaction, where the engines need
	// different ones.
	PerEngine(postgres, sqlite string) string
}

// Row is a row of a result.
type Row interface {
	Scan(dest ...any) error
	// Values are the values of all columns; nil = NULL.
	Values() ([]any, error)
}

// ErrEnough is returned by a scan function to stop early. Query then returns nil.
var ErrEnough = errors.New("enough rows")

// one reads the first row of a query; found is false when the query has no rows.
func one(ctx context.Context, tx Tx, text string, scan func(Row) error, args ...any) (found bool, err error) {
	err = tx.Query(ctx, text, func(r Row) error {
		if err := scan(r); err != nil {
			return err
		}
		found = true
		return ErrEnough
	}, args...)
	return found && err == nil, err
}

// into is a scan function for a row of single values.
func into(dest ...any) func(Row) error { return func(r Row) error { return r.Scan(dest...) } }

// all reads all rows of a query, in order.
func all[T any](ctx context.Context, tx Tx, text string, scan func(Row) (T, error), args ...any) (list []T, err error) {
	err = tx.Query(ctx, text, func(r Row) error {
		v, err := scan(r)
		if err == nil {
			list = append(list, v)
		}
		return err
	}, args...)
	return list, err
}

// statement is an SQL string with its arguments.
type statement struct {
	text string
	args []any
}

func with(text string, args ...any) statement { return statement{text, args} }

// later queues statements whose results are not read.
func later(ctx context.Context, tx Tx, list ...statement) error {
	for _, s := range list {
		if err := tx.Later(ctx, s.text, nil, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// query is a statement with its arguments; doing names the operation in errors.
type query struct {
	doing, text string
	args        []any
}

// list is a List that reads all rows of a query.
func list[T any](ctx context.Context, db Engine, q query, scan func(Row) (T, error)) (found []T, err error) {
	err = db.List(ctx, q.doing, func(ctx context.Context, tx Tx) error {
		found, err = all(ctx, tx, q.text, scan, q.args...)
		return err
	})
	return found, err
}

// transaction is the Update of an engine, or a Control.
type transaction func(ctx context.Context, doing string, change func(ctx context.Context, tx Tx) error) error

// result is a transaction with a result. A change may still run when its caller has returned
// because ctx has ended, so it must not write variables of the caller. Its return value is read
// only after the commit.
func result[T any](ctx context.Context, in transaction, doing string, change func(ctx context.Context, tx Tx) (T, error)) (T, error) {
	var none, out T
	err := in(ctx, doing, func(ctx context.Context, tx Tx) (err error) {
		out, err = change(ctx, tx)
		return err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

// control is a Control on a line.
func control(db Engine, line Line) transaction {
	return func(ctx context.Context, doing string, change func(ctx context.Context, tx Tx) error) error {
		return db.Control(ctx, line, doing, change)
	}
}

// value is a View that reads one value; the zero value when there is no row.
func value[T any](ctx context.Context, db Engine, q query) (v T, err error) {
	err = db.View(ctx, q.doing, func(ctx context.Context, tx Tx) error {
		_, err := one(ctx, tx, q.text, into(&v), q.args...)
		return err
	})
	return v, err
}

// newID makes a UUIDv7.
func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return id.String(), nil
}

// Change is a row of the audit log, without principal and time.
type Change struct{ Verb, Object, Before, After string }

// Nothing ever changes or removes a row of the audit log.
const logChangeSQL = `INSERT INTO audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {now})`

// logChange adds a row to the audit log.
func logChange(ctx context.Context, tx Tx, by store.ChangedBy, c Change) error {
	id, err := newID()
	if err != nil {
		return err
	}
	return tx.Later(ctx, logChangeSQL, nil, id, by.Who, c.Verb, c.Object, c.Before, c.After, by.Peer, by.RequestID)
}

// lockName serializes transactions that use this name; the lock is released with the transaction.
func lockName(ctx context.Context, tx Tx, kind, name string) error {
	text := tx.PerEngine(`SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtext($1), hashtext($2))) l`, "")
	if text == "" { // SQLite has one writer
		return nil
	}
	return tx.Query(ctx, text, func(Row) error { return nil }, kind, name)
}

// instant is a column with a time in milliseconds; NULL and 0 are the zero time.
type instant struct{ to *time.Time }

var _ sql.Scanner = instant{}

// Scan implements sql.Scanner.
func (c instant) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c.to = time.Time{}
	case int64:
		*c.to = fromMillis(v)
	default:
		return fmt.Errorf("a time is stored as %T", v)
	}
	return nil
}

// SetMillis sets the time from a number.
func (c instant) SetMillis(ms int64) { *c.to = fromMillis(ms) }

// fromMillis is the time of a stored number; 0 is the zero time.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// millis is a time where the column has no NULL; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// keyColumn is a column with the key of a session.
type keyColumn struct{ to *chat.SessionKey }

// Scan implements sql.Scanner.
func (c keyColumn) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a session key is stored as %T", v)
	}
	*c.to = parseKey(text)
	return nil
}

// parseKey is the inverse of chat.SessionKey.String. It does not validate: keys were checked before
// they were stored.
func parseKey(text string) chat.SessionKey {
	agent, rest, _ := strings.Cut(strings.TrimPrefix(text, "agent:"), ":")
	return chat.SessionKey{Agent: agent, Rest: rest}
}

// encode makes the JSON of a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %T for the database: %w", v, err)
	}
	return string(text), nil
}

// jsonColumn is a column with JSON; an empty string leaves the zero value.
type jsonColumn struct{ to any }

// Scan implements sql.Scanner.
func (c jsonColumn) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("JSON is stored as %T", v)
	}
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), c.to); err != nil {
		return fmt.Errorf("decode stored JSON: %w", err)
	}
	return nil
}

// span is a duration in milliseconds, rounded up: a lease or window is never shorter than
// requested. A negative one is 0.
func span(d time.Duration) int64 {
	return max(int64((d+time.Millisecond-1)/time.Millisecond), 0)
}

// null stores an empty string as NULL, in columns whose queries test for NULL.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// zero stores 0 as NULL.
func zero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// Inspection checks the invariants of the tables, and whether the database takes messages.
type Inspection struct {
	db    Engine
	inbox Inbox
}

// errRehearsed rolls a rehearsal back.
var errRehearsed = errors.New("rehearsed")

// Rehearse implements store.Store. The transactions of turns and the others are on different
// connections of PostgreSQL: a pooler that gives both the same session refuses the second.
func (s Inspection) Rehearse(ctx context.Context) error {
	turn := func(ctx context.Context, doing string, change func(context.Context, Tx) error) error {
		return s.db.Turn(ctx, doing, Alone, change)
	}
	for _, in := range []transaction{turn, s.db.Update} {
		if err := in(ctx, "rehearse the acceptance of a message and the start of its turn", s.rehearse); !errors.Is(err, errRehearsed) {
			return err
		}
	}
	return nil
}

func (s Inspection) rehearse(ctx context.Context, tx Tx) error {
	id, err := newID()
	if err != nil {
		return err
	}
	if err := tx.Later(ctx, registerSQL, func(Row) error { return nil }, id, span(defaultLease), "", "", false, ""); err != nil {
		return err
	}
	m := chat.Message{ID: id, Session: chat.SessionKey{Agent: "rehearsal", Rest: id}, Lane: "main", Principal: "gateway", Dedupe: id}
	m.Content.Text = "rehearsal \u2028" // a character that only a database with the encoding UTF-8 stores
	accepted, err := s.inbox.AcceptOn(ctx, tx, store.AcceptParams{Node: id, Take: true, Message: m})
	if err != nil {
		return err
	}
	start := startOp{p: store.StartParams{
		Claim: store.Claim{Session: m.Session, Node: id, Epoch: accepted.Epoch}, RunID: id, Lane: m.Lane, Seqs: []int64{accepted.Seq},
		Transcript: []chat.TranscriptEntry{{RunID: id, Role: chat.RoleUser, Text: m.Content.Text}},
	}}
	if _, err := s.inbox.startAll(ctx, tx, []*startOp{&start}, true); err != nil {
		return err
	}
	var seq int64 // a query sends the statements that wait for the end
	if _, err := one(ctx, tx, `SELECT seq FROM inbox WHERE message_id = $1 AND state = 'running'`, into(&seq), id); err != nil {
		return err
	}
	if seq != accepted.Seq {
		return fmt.Errorf("the database has not kept the message of a rehearsal: number %d, want %d", seq, accepted.Seq)
	}
	return errRehearsed
}

// Violations runs one rule and returns at most limit rows that violate it, as strings.
func (s Inspection) Violations(ctx context.Context, rule store.Invariant, values map[string]any, limit int) (broken [][]string, err error) {
	// The type of each value is given, because some rules compare values only with each other.
	text, args := rule.Bind(values, func(n int, value any) string {
		if _, ok := value.(string); ok {
			return fmt.Sprintf("CAST($%d AS text)", n)
		}
		return fmt.Sprintf("CAST($%d AS bigint)", n)
	})
	err = s.db.View(ctx, "check the rule "+rule.ID, func(ctx context.Context, tx Tx) error {
		broken = nil
		if limit <= 0 {
			return nil
		}
		return tx.Query(ctx, text, func(r Row) error {
			values, err := r.Values()
			if err != nil {
				return err
			}
			line := make([]string, len(values))
			for i, v := range values {
				line[i] = fmt.Sprint(v)
			}
			if broken = append(broken, line); len(broken) >= limit {
				return ErrEnough
			}
			return nil
		}, args...)
	})
	return broken, err
}
