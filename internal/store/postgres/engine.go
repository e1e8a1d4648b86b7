package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// engine runs the operations of sqlstore: a View on any connection of the pool, an Update in a
// transaction.
type engine struct{ *Store }

// View implements sqlstore.Engine.
func (e engine) View(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.do(ctx, doing, func(ctx context.Context) error { return see(ctx, &engineTx{Store: e.Store, to: e.pool}) })
}

// List implements sqlstore.Engine.
func (e engine) List(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.listing(ctx, doing, func(ctx context.Context) error { return see(ctx, &engineTx{Store: e.Store, to: e.pool}) })
}

// listing is do for a list: each attempt waits for its admission.
func (e engine) listing(ctx context.Context, doing string, read func(ctx context.Context) error) error {
	return e.do(ctx, doing, func(ctx context.Context) error {
		leave, err := e.lists.Enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		return read(ctx)
	})
}

// Snapshot implements sqlstore.Engine.
func (e engine) Snapshot(ctx context.Context, doing string, see func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.listing(ctx, doing, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, e.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			return see(ctx, e.shared(tx))
		})
	})
}

// Update implements sqlstore.Engine.
func (e engine) Update(ctx context.Context, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.tries(ctx, doing, e.pool, false, change)
}

// Turn implements sqlstore.Engine. Turns have a connection pool of their own.
func (e engine) Turn(ctx context.Context, doing string, share sqlstore.Share, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	if share != sqlstore.Shared {
		return e.tries(ctx, doing, e.turns, share == sqlstore.Again, change)
	}
	return e.shareable(ctx, doing, e.pooled(ctx, e.turns, &engineTx{Store: e.Store}, change))
}

// Poll implements sqlstore.Engine.
func (e engine) Poll(ctx context.Context, p store.Poll, look func(ctx context.Context, tx sqlstore.Tx) (sqlstore.Rest, error)) (*sqlstore.Rested, error) {
	if may, err := e.mayFind(ctx, p); !may || err != nil {
		return nil, err
	}
	run := e.Update
	if p.Kind == sqlstore.PollJobs || p.Kind == sqlstore.PollTasks {
		run = e.View // one statement instead of three
	}
	return nil, run(ctx, p.Kind, func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := look(ctx, tx)
		return err
	})
}

// shareable is the error of a shared transaction: each of its operations is then tried alone.
func (s *Store) shareable(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	s.log.DebugContext(ctx, "operations that shared a transaction are tried by themselves", "op", doing, "err", translate(err))
	return err
}

// tries runs a transaction with the retries of do.
func (e engine) tries(ctx context.Context, doing string, pool *pgxpool.Pool, repeated bool, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	return e.do(ctx, doing, func(ctx context.Context) error {
		err := e.pooled(ctx, pool, &engineTx{Store: e.Store, repeated: repeated}, change)
		repeated = repeated || errors.Is(err, sqlstore.ErrUnknown)
		return err
	})
}

// pooled runs a transaction on a connection of a pool.
func (e engine) pooled(ctx context.Context, pool *pgxpool.Pool, t *engineTx, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // this closes a connection that is still in a transaction
	return t.run(ctx, conn.Conn(), change)
}

// Control implements sqlstore.Engine: each line has a connection of its own.
func (e engine) Control(ctx context.Context, line sqlstore.Line, doing string, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	conn := e.ctrl
	if line == sqlstore.Beat {
		conn = e.beat
	}
	repeated := false
	return e.control(ctx, doing, conn, func(conn *pgx.Conn) error {
		t := &engineTx{Store: e.Store, repeated: repeated, quiet: line == sqlstore.Beat}
		err := t.run(ctx, conn, change)
		repeated = repeated || errors.Is(err, sqlstore.ErrUnknown)
		return err
	})
}

// engineTx runs statements in a transaction, or each in its own.
type engineTx struct {
	*Store

	to interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}
	// waiting are the statements to be sent with the next one; nil when each is sent immediately,
	// outside of a transaction or in one of the caller.
	waiting  *pgx.Batch
	begun    bool
	repeated bool
	changed  bool // it has changed rows
	quiet    bool // its changes make nothing due
}

// run runs a transaction. BEGIN is sent with the first statement and COMMIT with the last ones. A
// change without statements starts no transaction. An error of a transaction that may be committed
// wraps [sqlstore.ErrUnknown].
func (t *engineTx) run(ctx context.Context, conn *pgx.Conn, change func(ctx context.Context, tx sqlstore.Tx) error) error {
	t.to, t.waiting = conn, &pgx.Batch{}
	err, atCommit := change(ctx, t), false
	if err == nil && (t.begun || t.waiting.Len() > 0) {
		atCommit = true
		t.begin()
		t.waiting.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
			if tag.String() == "ROLLBACK" { // a statement failed, and its error was ignored
				return pgx.ErrTxCommitRollback
			}
			return nil
		})
		err = t.flush(ctx)
	}
	unknown := unknownOutcome(err, atCommit)
	if unknown {
		err = fmt.Errorf("%w: %w", sqlstore.ErrUnknown, err)
	}
	if (err == nil && t.changed || unknown) && !t.quiet {
		t.gate.changed()
	}
	if err == nil || !t.begun || conn.IsClosed() {
		return err
	}
	if _, undo := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK"); undo != nil && !repeatable(undo) {
		return errors.Join(err, undo)
	}
	return err
}

// begin queues the BEGIN of the transaction before the first statement.
func (t *engineTx) begin() {
	if t.begun {
		return
	}
	t.begun = true
	first := &pgx.Batch{}
	first.Queue("BEGIN")
	first.QueuedQueries = append(first.QueuedQueries, t.waiting.QueuedQueries...)
	t.waiting = first
}

// flush sends the queued statements.
func (t *engineTx) flush(ctx context.Context) error {
	t.begin()
	if t.waiting.Len() == 0 {
		return nil
	}
	b := t.waiting
	t.waiting = &pgx.Batch{}
	return t.to.SendBatch(ctx, b).Close()
}

// Repeated implements sqlstore.Tx.
func (t *engineTx) Repeated() bool { return t.repeated }

// Later implements sqlstore.Tx.
func (t *engineTx) Later(ctx context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	if t.waiting == nil {
		if scan == nil {
			_, err := t.Exec(ctx, text, args...)
			return err
		}
		return t.Query(ctx, text, scan, args...)
	}
	sql, all, err := t.statement(text, args)
	if err != nil {
		return err
	}
	q := t.waiting.Queue(sql, all...)
	if scan != nil {
		q.Query(func(rows pgx.Rows) error { return t.scanAll(rows, scan) })
	} else {
		q.Exec(func(tag pgconn.CommandTag) error {
			t.note(tag)
			return nil
		})
	}
	return nil
}

// note records whether a statement has changed rows.
func (t *engineTx) note(tag pgconn.CommandTag) {
	t.changed = t.changed || tag.RowsAffected() > 0 && !tag.Select()
}

// Now implements sqlstore.Tx. The clock of a transaction is its start time.
func (t *engineTx) Now(ctx context.Context) (now int64, err error) {
	err = t.Query(ctx, `SELECT {now}`, func(r sqlstore.Row) error { return r.Scan(&now) })
	return now, err
}

// PerEngine implements sqlstore.Tx.
func (t *engineTx) PerEngine(postgres, _ string) string { return postgres }

// statement is an SQL string with its arguments.
func (t *engineTx) statement(text string, args []any) (string, []any, error) {
	s := t.dialect.Of(text)
	plain, rows, err := s.Split(args)
	if err != nil {
		return "", nil, err
	}
	all := make([]any, 0, len(plain)+2)
	for _, v := range plain {
		switch v := v.(type) {
		case string:
			all = append(all, chat.CleanText(v))
		case []string:
			all = append(all, cleanAll(v))
		case []int64:
			all = append(all, append([]int64{}, v...)) // a nil slice would become NULL
		default:
			all = append(all, v)
		}
	}
	if s.Now > 0 {
		all = append(all, t.clock())
	}
	if s.HasSet() {
		list, err := s.JSON(rows, chat.CleanText)
		if err != nil {
			return "", nil, err
		}
		all = append(all, list)
	}
	return s.SQL, all, nil
}

// Exec implements sqlstore.Tx.
func (t *engineTx) Exec(ctx context.Context, text string, args ...any) (changed int64, err error) {
	sql, all, err := t.statement(text, args)
	if err != nil {
		return 0, err
	}
	if t.waiting == nil {
		tag, err := t.to.Exec(ctx, sql, all...)
		return tag.RowsAffected(), err
	}
	t.waiting.Queue(sql, all...).Exec(func(tag pgconn.CommandTag) error {
		changed = tag.RowsAffected()
		t.note(tag)
		return nil
	})
	err = t.flush(ctx)
	return changed, err
}

// Query implements sqlstore.Tx.
func (t *engineTx) Query(ctx context.Context, text string, scan func(sqlstore.Row) error, args ...any) error {
	if t.waiting != nil {
		if err := t.Later(ctx, text, scan, args...); err != nil {
			return err
		}
		return t.flush(ctx)
	}
	sql, all, err := t.statement(text, args)
	if err != nil {
		return err
	}
	rows, err := t.to.Query(ctx, sql, all...)
	if err != nil {
		return err
	}
	return t.scanAll(rows, scan)
}

// scanAll reads the rows of a statement to the end, where its error is available.
func (t *engineTx) scanAll(rows pgx.Rows, scan func(sqlstore.Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			if errors.Is(err, sqlstore.ErrEnough) {
				break
			}
			return err
		}
	}
	rows.Close()
	t.note(rows.CommandTag())
	return rows.Err()
}

// shared is a transaction in the form that operations of sqlstore use.
func (s *Store) shared(tx pgx.Tx) sqlstore.Tx { return &engineTx{Store: s, to: tx} }

func cleanAll(list []string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = chat.CleanText(v)
	}
	return out
}

// control is a connection outside of the pool, for operations that must not wait while every pooled
// connection is busy. One operation at a time uses it; a broken connection is replaced at the next
// use.
type control struct {
	cfg  *pgx.ConnConfig
	turn chan struct{} // holds one token; the goroutine that has it may use conn
	conn *pgx.Conn
	// history is the commit history of the database of conn, see [store.Beat]; "" until a heartbeat
	// has asked for it.
	history string
}

func newControl(cfg *pgx.ConnConfig) *control {
	c := &control{cfg: cfg.Copy(), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// use runs fn with the connection. It waits for the connection only until ctx ends.
func (c *control) use(ctx context.Context, fn func(*pgx.Conn) error) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the control connection: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	if c.conn == nil || c.conn.IsClosed() {
		conn, err := pgx.ConnectConfig(ctx, c.cfg)
		if err != nil {
			return err
		}
		c.conn, c.history = conn, ""
	}
	return fn(c.conn)
}

// historyOf identifies the commit history of a database: a restored copy of another cluster has
// another system identifier, and a promoted standby another timeline. A failover breaks
// connections, so one query per connection is enough. "" for a compatible database that does not
// report it, or a standby.
func historyOf(ctx context.Context, conn *pgx.Conn) string {
	var name string
	err := conn.QueryRow(ctx, `SELECT 'system ' || system_identifier || ', timeline ' || substring(pg_walfile_name(pg_current_wal_lsn()) FOR 8)
		FROM pg_control_system()`).Scan(&name)
	if err != nil {
		return ""
	}
	return name
}

// close waits for the operation in progress and closes the connection.
func (c *control) close() error {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	if c.conn == nil {
		return nil
	}
	conn := c.conn
	c.conn = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // a goodbye with a bound of its own
	defer cancel()
	if err := conn.Close(ctx); err != nil {
		return fmt.Errorf("closing a control connection: %w", err)
	}
	return nil
}

// fromMillis is a stored instant; 0 (and NULL, which the queries turn into 0) is the zero time.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// arrayCodec is pgx's array codec with its own plans for []string and []int64, the columns of the
// statements of groups and claims. pgx makes an interface value of each element and grows the
// buffer many times, which was a quarter of the allocations of a fire.
type arrayCodec struct{ pgtype.ArrayCodec }

// PlanEncode implements pgtype.Codec.
func (c *arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []string:
			if oid == pgtype.TextArrayOID {
				return textsPlan{}
			}
		case []int64:
			if oid == pgtype.Int8ArrayOID {
				return numbersPlan{}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// useArrayCodec registers the codec on a connection.
func useArrayCodec(m *pgtype.Map) {
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.Int8ArrayOID} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		if c, ok := t.Codec.(*pgtype.ArrayCodec); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: &arrayCodec{*c}})
		}
	}
}

type textsPlan struct{}

// Encode implements pgtype.EncodePlan.
func (textsPlan) Encode(value any, buf []byte) ([]byte, error) {
	list, ok := value.([]string)
	if !ok || list == nil {
		return nil, nil
	}
	size := arrayHeaderBytes
	for _, v := range list {
		size += 4 + len(v)
	}
	buf = appendArrayHeader(room(buf, size), pgtype.TextOID, len(list))
	for _, v := range list {
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...) //nolint:gosec // a text of 4 GB does not fit into a message
	}
	return buf, nil
}

type numbersPlan struct{}

// Encode implements pgtype.EncodePlan.
func (numbersPlan) Encode(value any, buf []byte) ([]byte, error) {
	list, ok := value.([]int64)
	if !ok || list == nil {
		return nil, nil
	}
	buf = appendArrayHeader(room(buf, arrayHeaderBytes+12*len(list)), pgtype.Int8OID, len(list))
	for _, v := range list {
		buf = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v)) //nolint:gosec // the bits of the number
	}
	return buf, nil
}

// room makes room for n bytes. A full buffer at least doubles, because further arrays of the
// statement follow.
func room(buf []byte, n int) []byte {
	if cap(buf)-len(buf) < n {
		n = max(n, cap(buf))
	}
	return slices.Grow(buf, n)
}

// arrayHeaderBytes is the length of the header of an array with one dimension.
const arrayHeaderBytes = 20

// appendArrayHeader appends the header of an array without NULLs whose index starts at 1.
func appendArrayHeader(buf []byte, element uint32, n int) []byte {
	for _, v := range [...]uint32{1, 0, element, uint32(n), 1} { //nolint:gosec // a message has room for fewer than 4 G elements
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return buf
}

// Unregister is the clean stop of a node, see store.Nodes.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	err := s.Store.Unregister(ctx, nodeID)
	if err == nil {
		s.wake.forget(nodeID)
	}
	return err
}

// Heartbeat adds the commit history of the database to the common operation.
func (s *Store) Heartbeat(ctx context.Context, nodeID string, draining bool) (store.Beat, error) {
	b, err := s.Store.Heartbeat(ctx, nodeID, draining)
	if err != nil {
		return b, err
	}
	err = s.beat.use(ctx, func(conn *pgx.Conn) error {
		if s.beat.history == "" { // the question failed, or the server was a standby
			s.beat.history = historyOf(ctx, conn)
		}
		b.History = s.beat.history
		return nil
	})
	return b, err
}

var _ store.Allowances = (*Store)(nil)

// allowanceSQL refills the allowance for the elapsed time, and takes whole calls from it. A clock
// that was set back refills nothing. $1 clock, $2 name, $3 how many, $4 calls per minute.
const allowanceSQL = `
INSERT INTO allowances AS a (name, tokens, got, at) VALUES ($2, $4::bigint - LEAST($3::bigint, $4::bigint), LEAST($3::bigint, $4::bigint), ` + nowSQL + `)
ON CONFLICT (name) DO UPDATE SET
	got    = LEAST($3::bigint, floor(` + availableSQL + `)),
	tokens = ` + availableSQL + ` - LEAST($3::bigint, floor(` + availableSQL + `)),
	at     = GREATEST(a.at, excluded.at)
RETURNING got, tokens`

const availableSQL = `LEAST($4::bigint, a.tokens + GREATEST(excluded.at - a.at, 0) * $4::bigint / 60000.0)`

// TakeAllowance takes calls from an allowance, see store.Allowances.
func (s *Store) TakeAllowance(ctx context.Context, name string, n, perMinute int) (got int, wait time.Duration, err error) {
	var left float64
	err = s.do(ctx, "taking an allowance", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, allowanceSQL, s.clock(), chat.CleanText(name), n, perMinute).Scan(&got, &left)
	})
	if err != nil || got > 0 {
		return got, 0, err
	}
	return 0, time.Duration(math.Ceil((1-left)*60_000/float64(perMinute))) * time.Millisecond, nil
}
