package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
	"laneway/internal/store/storetest"
)

// room is the state of a session in the history.
type room struct {
	claim   store.Claim
	waiting []int64
	run     string // "" when no run is running
	ran     string // the last run that ended
}

// call is an operation of the history. It returns what the caller receives.
type call func(ctx context.Context, s *Store) (any, error)

// ids match the ids that each store generates.
var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestOperationsThatShareABatchDoWhatTheyDoAlone applies random histories to two stores. In one the
// operations of a round wait for the writer and share a batch, in the other each one has its own.
// Their results and all tables must be equal.
func TestOperationsThatShareABatchDoWhatTheyDoAlone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			now := time.UnixMilli(1_700_000_000_000)
			var stores [2]*Store
			for i := range stores {
				s, err := Open(t.Context(), Config{Path: migrated(t), Now: func() time.Time { return now }, Unsynced: true})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				register(t, s, "node")
				stores[i] = s
			}
			together, alone := stores[0], stores[1]
			db, rooms := outside(t, alone.path), make([]*room, 6)
			for i := range rooms {
				rooms[i] = &room{}
			}
			for round := range 40 {
				now = now.Add(time.Second)
				var calls []call
				for i, x := range rooms {
					kind := x.kind(r)
					for n := range 1 + r.IntN(5)/4 { // two operations of a session must not run together
						calls = append(calls, x.next(r, kind, fmt.Sprint("room-", i), fmt.Sprintf("%d-%d-%d", round, i, n)))
					}
				}
				want := make([]string, len(calls))
				for i, do := range calls {
					v, err := do(t.Context(), alone)
					want[i] = seen(v, err)
				}
				if diff := cmp.Diff(want, atOnce(t, together, calls)); diff != "" {
					t.Fatalf("round %d (- alone, + together):\n%s", round, diff)
				}
				for i, x := range rooms {
					x.look(t, db, fmt.Sprint("room-", i))
				}
			}
			if diff := cmp.Diff(dump(t, alone), dump(t, together)); diff != "" {
				t.Errorf("the tables differ (- alone, + together):\n%s", diff)
			}
		})
	}
}

// kind is the kind of the next operation in the session. Within a batch the operations of different
// kinds may change places.
func (x *room) kind(r *rand.Rand) string {
	switch {
	case x.run != "" && r.IntN(3) > 0:
		return "finish"
	case len(x.waiting) > 0 && r.IntN(2) > 0:
		return "start"
	default:
		return "accept"
	}
}

// next is an operation of the session, which is sometimes refused.
func (x *room) next(r *rand.Rand, kind, name, id string) call {
	c := x.claim
	if r.IntN(8) == 0 {
		c.Epoch++ // the claim of another owner
	}
	switch kind {
	case "finish":
		p := store.FinishParams{
			Claim: c, RunID: x.run, State: store.RunOK, Outcome: chat.OutcomeAnswered, Preview: id,
			Transcript: []chat.TranscriptEntry{{RunID: x.run, Role: chat.RoleAssistant, Text: "answer " + id}},
			Outgoing:   []store.Outgoing{{Kind: store.KindReply, Text: id, Session: c.Session, Target: chat.Target{Channel: "web", ChatID: name}}},
		}
		return func(ctx context.Context, s *Store) (any, error) { return s.Finish(ctx, p) }
	case "start":
		p := store.StartParams{
			Claim: c, RunID: "run-" + id, Lane: "main", Seqs: x.waiting[:1+r.IntN(len(x.waiting))],
			Transcript: []chat.TranscriptEntry{{RunID: "run-" + id, Role: chat.RoleUser, Text: "question " + id}},
		}
		if r.IntN(6) == 0 && x.ran != "" {
			p.RunID = x.ran
		}
		return func(ctx context.Context, s *Store) (any, error) { return s.Start(ctx, p) }
	default:
		p := message("node", name, id)
		p.Queue.Cap, p.Queue.DropNew = 3, r.IntN(2) == 1
		if r.IntN(5) == 0 {
			p.Message.Dedupe = "key:the same of " + name
		}
		return func(ctx context.Context, s *Store) (any, error) { return s.Accept(ctx, p) }
	}
}

// look reads what the next operation of the session needs.
func (x *room) look(t *testing.T, db *sql.DB, name string) {
	t.Helper()
	key := chat.SessionKey{Agent: "main", Rest: name}
	before := x.run
	*x = room{ran: x.ran}
	for _, row := range storetest.Query(t, db, `SELECT owner, epoch FROM sessions WHERE key = ?`, key.String()) {
		owner, _ := row[0].(string)
		x.claim = store.Claim{Session: key, Node: owner, Epoch: row[1].(int64)}
	}
	for _, row := range storetest.Query(t, db, `SELECT seq FROM inbox WHERE session_key = ? AND state = 'waiting' ORDER BY seq`, key.String()) {
		x.waiting = append(x.waiting, row[0].(int64))
	}
	for _, row := range storetest.Query(t, db, `SELECT id FROM runs WHERE session_key = ? AND ended_at IS NULL`, key.String()) {
		x.run = row[0].(string)
	}
	if before != "" && x.run != before {
		x.ran = before
	}
}

// atOnce runs the operations in one batch, in their order.
func atOnce(t *testing.T, s *Store, calls []call) []string {
	t.Helper()
	got := make([]string, len(calls))
	g := block(t, s)
	var wg sync.WaitGroup
	for i, do := range calls {
		wg.Go(func() {
			v, err := do(t.Context(), s)
			got[i] = seen(v, err)
		})
		queueLength(t, s, i+1)
	}
	close(g.leave)
	wg.Wait()
	return got
}

func seen(v any, err error) string { return ids.ReplaceAllString(fmt.Sprintf("%+v %v", v, err), "ID") }

// dump is the content of all tables.
func dump(t *testing.T, s *Store) map[string][]string {
	t.Helper()
	db, out := outside(t, s.path), map[string][]string{}
	for _, table := range storetest.Query(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%STRICT%'`) {
		var rows []string
		text := `SELECT * FROM ` + table[0].(string)
		if table[0] == "outbox" { // the second of two operations of a session is in a later batch, after those of other sessions
			text = `SELECT o.*, row_number() OVER (PARTITION BY session_key ORDER BY place) FROM outbox o`
		}
		for _, row := range storetest.Query(t, db, text) {
			if table[0] == "outbox" {
				row[1] = nil // place
			}
			rows = append(rows, seen(row, nil))
		}
		slices.Sort(rows)
		out[table[0].(string)] = rows
	}
	if len(out["runs"]) < 10 || len(out["outbox"]) < 10 {
		t.Errorf("the history has %d runs and %d answers only", len(out["runs"]), len(out["outbox"]))
	}
	return out
}

// fake is an operation that writes a row named after it.
type fake struct {
	name     string
	runAll   func(ctx context.Context, tx sqlstore.Tx, n int) ([]bool, error)
	together *int // how many last ran together
}

func (f *fake) Name() string { return f.name }

func (f *fake) Kind() any { return "fake" }

func (f *fake) Run(ctx context.Context, tx sqlstore.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO leases (name, owner) VALUES ($1, 'alone')`, f.name)
	return err
}

func (f *fake) RunAll(ctx context.Context, tx sqlstore.Tx, list []sqlstore.Batched) ([]bool, error) {
	*f.together = len(list)
	return f.runAll(ctx, tx, len(list))
}

// TestAFailureOfOperationsTogetherLeavesEachAlone covers each kind of failure: no write of it
// remains, and each operation then runs alone.
func TestAFailureOfOperationsTogetherLeavesEachAlone(t *testing.T) {
	t.Parallel()
	half := func(ctx context.Context, tx sqlstore.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO leases (name, owner) VALUES ('half', 'node')`)
		return err
	}
	for name, runAll := range map[string]func(ctx context.Context, tx sqlstore.Tx, n int) ([]bool, error){
		"leaves out": func(_ context.Context, _ sqlstore.Tx, n int) ([]bool, error) { return make([]bool, n), nil },
		"refuses":    func(context.Context, sqlstore.Tx, int) ([]bool, error) { return nil, chat.ErrQueueFull },
		"refuses after a write": func(ctx context.Context, tx sqlstore.Tx, _ int) ([]bool, error) {
			return nil, errors.Join(half(ctx, tx), chat.ErrQueueFull)
		},
		"fails": func(ctx context.Context, tx sqlstore.Tx, _ int) ([]bool, error) {
			_, err := tx.Exec(ctx, `INSERT INTO nowhere VALUES (1)`)
			return nil, errors.Join(half(ctx, tx), err)
		},
		"panics": func(ctx context.Context, tx sqlstore.Tx, _ int) ([]bool, error) { panic(half(ctx, tx)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, most := open(t), 0
			var calls []call
			for _, name := range []string{"a", "b", "c"} {
				calls = append(calls, func(ctx context.Context, s *Store) (any, error) {
					return nil, engine{s}.Batch(ctx, "test", &fake{name: name, runAll: runAll, together: &most})
				})
			}
			got := atOnce(t, s, calls)
			if got[0] != "<nil> <nil>" || got[1] != got[0] || got[2] != got[0] || most != 3 {
				t.Errorf("got %q, %d ran together", got, most)
			}
			rows := storetest.Query(t, outside(t, s.path), `SELECT name FROM leases ORDER BY name`)
			if want := [][]any{{"a"}, {"b"}, {"c"}}; !cmp.Equal(rows, want) {
				t.Errorf("the rows are %v, want %v", rows, want)
			}
		})
	}
}
