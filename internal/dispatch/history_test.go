package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// readers counts what is read of transcripts.
type readers struct {
	dispatch.Store

	mu             sync.Mutex
	reads, entries int
}

func (r *readers) Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	tr, err := r.Store.Transcript(ctx, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.RunID == "" { // the entries of one run are read for who waits for its answer
		r.reads++
		r.entries += len(tr.Entries)
	}
	return tr, err
}

// since returns what was read since the last call.
func (r *readers) since() (reads, entries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reads, entries = r.reads, r.entries
	r.reads, r.entries = 0, 0
	return reads, entries
}

func TestTurnReadsOnlyNewEntries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := &readers{Store: newStore(t)}
		h := open(t, st)
		defer h.close()
		h.end(h.send("long", "first"))
		for i := range 250 {
			st.since()
			h.end(h.send("long", fmt.Sprintf("message %d", i)))
			if reads, entries := st.since(); reads != 1 || entries > 2 {
				t.Fatalf("turn %d read the transcript %d times, %d entries, want once and the answer before it with its question", i, reads, entries)
			}
		}
		// The messages of another replica are further than a page away.
		key := h.msg("long", "").Session
		for i := range 300 {
			e := chat.TranscriptEntry{Role: chat.RoleUser, Text: fmt.Sprintf("from elsewhere %d", i)}
			if _, err := h.st.AppendTranscript(t.Context(), key, "tester", []chat.TranscriptEntry{e}); err != nil {
				t.Fatal(err)
			}
		}
		h.end(h.send("long", "last"))
		calls := len(h.runner.texts())
		req, _, _ := h.runner.call(calls - 1)
		want(t, "entries of the history", len(req.History), 2*251+300)
	})
}

// Whatever happens to sessions between its turns, an agent gets what stands in the transcript.
func TestHistoryIsTheTranscript(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				r := rand.New(rand.NewPCG(seed, 8))
				sessions := []string{"a", "b"}
				for step := range 120 {
					name := sessions[r.IntN(len(sessions))]
					key := h.msg(name, "").Session
					switch r.IntN(12) {
					case 0:
						h.end(h.send(name, "/new"))
					case 1:
						_, err := h.d.Delete(t.Context(), store.DeleteParams{Session: key, KeepTranscript: r.IntN(2) == 0}, chat.Caller{Principal: "tester"})
						if err != nil && chat.CodeOf(err) != chat.CodeNotFound {
							t.Fatal(err)
						}
					case 2:
						run := h.send(name, "the branch begins here")
						h.end(run)
						at, err := h.d.BranchAt(t.Context(), key, run)
						if err != nil {
							if chat.CodeOf(err) == chat.CodeLimit {
								continue
							}
							t.Fatal(err)
						}
						branch := "api:" + uuid.NewString()
						h.turnSeesTheTranscript(branch, "a branch", func(m *chat.Message) { m.Branch = &at })
						sessions = append(sessions, branch)
					case 3:
						h.turnSeesTheTranscript(name, strings.Repeat("a long message ", 1+r.IntN(1000)))
					case 4:
						e := chat.TranscriptEntry{Role: chat.RoleUser, Text: "a delivery", Command: r.IntN(2) == 0}
						if _, err := h.st.AppendTranscript(t.Context(), key, "tester", []chat.TranscriptEntry{e}); err != nil {
							t.Fatal(err)
						}
					default:
						h.turnSeesTheTranscript(name, fmt.Sprintf("message %d", step))
					}
				}
			})
		})
	}
}

// turnSeesTheTranscript sends a message, and compares the history that its agent got with the
// transcript in the store.
func (h *harness) turnSeesTheTranscript(session, text string, change ...func(*chat.Message)) {
	h.t.Helper()
	id := h.send(session, text, change...)
	h.end(id)
	req, _, _ := h.runner.call(len(h.runner.texts()) - 1)
	tr, err := h.st.Transcript(h.t.Context(), store.TranscriptQuery{Session: req.Session, Limit: 10_000, MaxBytes: 64 << 20})
	if err != nil {
		h.t.Fatal(err)
	}
	var expect []chat.TranscriptEntry
	for _, e := range tr.Entries {
		if !e.Command && e.RunID != req.RunID {
			expect = append(expect, e)
		}
	}
	expect = agent.CutHistory(expect, 24_000)
	if len(req.History) != len(expect) || len(expect) > 0 && !reflect.DeepEqual(req.History, expect) {
		h.t.Fatalf("%s got %d entries, the transcript has %d of them", session, len(req.History), len(expect))
	}
}
