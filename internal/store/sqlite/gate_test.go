package sqlite

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// polls are the polls for due work of a node; each reports whether it found something.
func polls(ctx context.Context, s *Store, node string) map[string]func() (bool, error) {
	return map[string]func() (bool, error){
		sqlstore.PollSweep: func() (bool, error) {
			l, err := s.Sweep(ctx, store.SweepParams{Node: node, Limit: 10})
			return len(l) > 0, err
		},
		sqlstore.PollHinted: func() (bool, error) {
			l, err := s.Hinted(ctx, node, func(chat.SessionKey) int64 { return 0 }, 10)
			return len(l) > 0, err
		},
		sqlstore.PollOutgoing: func() (bool, error) {
			l, err := s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"telegram:1"}, Limit: 10})
			return len(l) > 0, err
		},
		"claim due jobs": func() (bool, error) {
			c, err := s.Claim(ctx, cron.ClaimParams{Node: node, Decide: func(time.Time, []cron.DueJob) []cron.Verdict { return nil }})
			return len(c.Jobs)+len(c.Launched) > 0, err
		},
		sqlstore.PollQuestions: func() (bool, error) {
			l, err := s.TakeQuestions(ctx, store.TakeQuestionsParams{Node: node, Limit: 10})
			return len(l) > 0, err
		},
		sqlstore.PollTasks: func() (bool, error) {
			l, err := s.Tasks(ctx, store.TaskFilter{Left: true, Limit: 10})
			return len(l) > 0, err
		},
	}
}

// TestPollsOfAnIdleStoreReadNothing takes the connections away from a store whose polls rest: they return the same results until something changes.
func TestPollsOfAnIdleStoreReadNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "a")
	all := polls(t.Context(), s, "a")
	for name, look := range all {
		if found, err := look(); found || err != nil {
			t.Fatalf("%s of an empty store: %t, %v", name, found, err)
		}
	}
	s.write.close()
	if err := errors.Join(s.read.close(), s.write.disconnect(), s.lock.release()); err != nil {
		t.Fatal(err)
	}
	for name, look := range all {
		if found, err := look(); found || err != nil {
			t.Errorf("%s without a connection: %t, %v", name, found, err)
		}
	}
	s.gate.Changed()
	for name, look := range all {
		if _, err := look(); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Errorf("%s after a change got %v, want the error of a closed store", name, err)
		}
	}
}

// TestPollsFindWhatTimeAloneMakesDue lets a poll rest and runs it again one millisecond before and at the instant at which its work is due.
func TestPollsFindWhatTimeAloneMakesDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		poll  string
		after time.Duration
		make  func(ctx context.Context, s *Store) error
	}{
		"a debounce window ends": {sqlstore.PollSweep, 20 * time.Second, func(ctx context.Context, s *Store) error {
			p := message("", "lobby", "1")
			p.Take, p.Hold = false, 20*time.Second
			_, err := s.Accept(ctx, p)
			return err
		}},
		"the lease of another node ends": {sqlstore.PollSweep, 30 * time.Second, func(ctx context.Context, s *Store) error {
			if err := s.Register(ctx, store.Node{ID: "b", Lease: 30 * time.Second}); err != nil {
				return err
			}
			_, err := s.Accept(ctx, message("b", "lobby", "1"))
			return err
		}},
		"the next attempt of a delivery": {sqlstore.PollOutgoing, 7 * time.Second, func(ctx context.Context, s *Store) error {
			return s.Enqueue(ctx, []store.Outgoing{{Kind: store.KindNotice, Text: "hi", Target: chat.Target{Channel: "telegram:1", ChatID: "7"}, Delay: 7 * time.Second}})
		}},
		"a node dies while it delivers": {sqlstore.PollOutgoing, 30 * time.Second, func(ctx context.Context, s *Store) error {
			if err := s.Register(ctx, store.Node{ID: "b", Lease: 30 * time.Second}); err != nil {
				return err
			}
			err := s.Enqueue(ctx, []store.Outgoing{{Kind: store.KindNotice, Text: "hi", Target: chat.Target{Channel: "telegram:1", ChatID: "7"}}})
			if err == nil {
				_, err = s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: "b", Channels: []string{"telegram:1"}, Limit: 1})
			}
			return err
		}},
		"a node dies with an allowed call": {sqlstore.PollQuestions, 30 * time.Second, func(ctx context.Context, s *Store) error {
			if err := s.Register(ctx, store.Node{ID: "b", Lease: 30 * time.Second}); err != nil {
				return err
			}
			q := store.Question{ID: "q", Owner: "ann", Session: chat.SessionKey{Agent: "main", Rest: "lobby"}, Body: []byte("{}")}
			if err := s.PutQuestion(ctx, q); err != nil {
				return err
			}
			_, err := s.AnswerQuestion(ctx, store.AnswerQuestion{ID: "q", By: "ann", Option: 1, Allow: true, Node: "b"})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openAt(t, migrated(t), nil)
				register(t, s, "a")
				if err := c.make(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				look := polls(t.Context(), s, "a")[c.poll]
				for _, wait := range []time.Duration{0, c.after - time.Millisecond} {
					if time.Sleep(wait); wait >= 0 {
						if found, err := look(); found || err != nil {
							t.Fatalf("after %s it found %t, %v", wait, found, err)
						}
					}
				}
				time.Sleep(time.Millisecond)
				if found, err := look(); !found || err != nil {
					t.Errorf("when it is due it found %t, %v", found, err)
				}
			})
		})
	}
}
