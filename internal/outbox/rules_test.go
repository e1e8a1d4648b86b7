package outbox

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

func TestAFailedAttemptMeansForItsRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		made := time.Now()
		time.Sleep(maxAge)
		down := errors.New("refused")
		for name, c := range map[string]struct {
			row  store.Outgoing
			err  error
			down bool
			want store.UndeliveredParams
			wait time.Duration // about this long, a third less or more; negative = exactly this long
		}{
			"an error of no channel counts":            {row: store.Outgoing{Attempt: 1}, err: down, want: store.UndeliveredParams{Error: "refused"}, wait: time.Second},
			"its text is cut":                          {row: store.Outgoing{Attempt: 1}, err: errors.New(strings.Repeat("x", maxError+1)), want: store.UndeliveredParams{Error: strings.Repeat("x", maxError)}, wait: time.Second},
			"the last but one attempt":                 {row: store.Outgoing{Attempt: maxAttempts - 1}, err: down, want: store.UndeliveredParams{Error: "refused"}, wait: 5 * time.Minute},
			"the last attempt":                         {row: store.Outgoing{Attempt: maxAttempts}, err: down, want: store.UndeliveredParams{Error: "refused", Permanent: true}, wait: 5 * time.Minute},
			"an error of the channel counts":           {row: store.Outgoing{Attempt: 2}, err: &channel.SendError{Reason: "server"}, want: store.UndeliveredParams{Error: "server"}, wait: 2 * time.Second},
			"the last attempt of a channel":            {row: store.Outgoing{Attempt: maxAttempts}, err: &channel.SendError{Reason: "server"}, want: store.UndeliveredParams{Error: "server", Permanent: true}, wait: 5 * time.Minute},
			"refused for good":                         {row: store.Outgoing{Attempt: 1}, err: &channel.SendError{Reason: "bad", Permanent: true}, want: store.UndeliveredParams{Error: "bad", Permanent: true}, wait: time.Second},
			"the provider asks to wait":                {row: store.Outgoing{Attempt: 1}, err: &channel.SendError{Reason: "rate", RetryAfter: time.Hour}, want: store.UndeliveredParams{Error: "rate"}, wait: -time.Hour},
			"the provider is not reached":              {row: store.Outgoing{Attempt: 9}, err: &channel.SendError{Reason: "connection", Uncounted: true}, want: store.UndeliveredParams{Error: "connection", Uncounted: true}, wait: 3 * time.Second},
			"it may have arrived, the channel is down": {row: store.Outgoing{Attempt: 9}, down: true, err: &channel.SendError{Reason: "connection", Uncounted: true, Unknown: true}, want: store.UndeliveredParams{Error: "connection", Uncounted: true, MaybeSent: true}, wait: 3 * time.Second},
			"it may have arrived, the channel works":   {row: store.Outgoing{Attempt: 1}, err: &channel.SendError{Reason: "timeout", Uncounted: true, Unknown: true}, want: store.UndeliveredParams{Error: "timeout", MaybeSent: true}, wait: time.Second},
			"it may have arrived, and a wait is asked": {row: store.Outgoing{Attempt: 1}, err: &channel.SendError{Reason: "rate", Uncounted: true, Unknown: true, RetryAfter: time.Minute}, want: store.UndeliveredParams{Error: "rate", Uncounted: true, MaybeSent: true}, wait: -time.Minute},
			"its claim has ended":                      {row: store.Outgoing{Attempt: 3}, err: stale(errStale), want: store.UndeliveredParams{Error: reasonStale, Uncounted: true}, wait: -1},
			"a day old, tried before":                  {row: store.Outgoing{Attempt: 2, CreatedAt: made}, err: &channel.SendError{Reason: "connection", Uncounted: true}, want: store.UndeliveredParams{Error: "given up after 24h0m0s: connection", Permanent: true, Uncounted: true}, wait: 3 * time.Second},
			"a day old, about a moment":                {row: store.Outgoing{Attempt: 2, CreatedAt: made, Origin: &chat.Origin{Once: true}}, err: &channel.SendError{Reason: "connection", Uncounted: true}, want: store.UndeliveredParams{Error: "connection", Uncounted: true}, wait: 3 * time.Second},
			"a day old, its first attempt":             {row: store.Outgoing{Attempt: 1, CreatedAt: made}, err: &channel.SendError{Reason: "connection", Uncounted: true}, want: store.UndeliveredParams{Error: "connection", Uncounted: true}, wait: 3 * time.Second},
			"less than a day old":                      {row: store.Outgoing{Attempt: 2, CreatedAt: made.Add(1)}, err: &channel.SendError{Reason: "connection", Uncounted: true}, want: store.UndeliveredParams{Error: "connection", Uncounted: true}, wait: 3 * time.Second},
		} {
			if c.row.CreatedAt.IsZero() {
				c.row.CreatedAt = time.Now()
			}
			c.row.ID = "r"
			got := undelivered("n1", c.row, c.err, c.down)
			least, most := c.wait*2/3, c.wait*4/3
			if c.wait < 0 {
				least, most = -c.wait, -c.wait
			}
			if c.wait == -1 {
				least, most = 0, 0
			}
			if got.RetryIn < least || got.RetryIn > most {
				t.Errorf("%s: the wait is %s, want %s to %s", name, got.RetryIn, least, most)
			}
			c.want.Node, c.want.ID, c.want.RetryIn = "n1", "r", got.RetryIn
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: got %+v, want %+v", name, got, c.want)
			}
		}
	})
}

func TestTheEndOfTheProcessSendsNothingTwice(t *testing.T) {
	t.Parallel()
	for unknown, want := range map[bool]store.UndeliveredParams{
		true:  {RetryIn: time.Minute, Permanent: true},
		false: {},
	} {
		got := store.UndeliveredParams{RetryIn: time.Minute}
		if abandon(&got, &channel.SendError{Unknown: unknown}); !reflect.DeepEqual(got, want) {
			t.Errorf("may have arrived %t: got %+v, want %+v", unknown, got, want)
		}
	}
}

func TestARowIsTheReplyOfItsChannel(t *testing.T) {
	t.Parallel()
	row := func(change func(r *store.Outgoing)) store.Outgoing {
		r := store.Outgoing{
			ID: "o", RunID: "run/2", Target: chat.Target{Channel: "telegram", ChatID: "7"}, Principal: "ann", Kind: store.KindReply, Text: "one", TextMany: "%d of them",
			Count: 1, Attempt: 3, Progress: "1",
		}
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		change    func(r *store.Outgoing)
		run, text string
	}{
		"one":                             {func(*store.Outgoing) {}, "run/2", "one"},
		"many":                            {func(r *store.Outgoing) { r.Count = 2 }, "run/2", "2 of them"},
		"many without words for them":     {func(r *store.Outgoing) { r.Count, r.TextMany = 2, "" }, "run/2", "one"},
		"an attempt of a run, to a URL":   {func(r *store.Outgoing) { r.Target.Channel = channel.Webhook }, "run", "one"},
		"an attempt of a run, to the web": {func(r *store.Outgoing) { r.Target.Channel = channel.Web }, "run", "one"},
	} {
		r := row(c.change)
		want := chat.Reply{ID: "o", RunID: c.run, Target: r.Target, Principal: "ann", Kind: store.KindReply, Text: c.text, Attempt: 3, Progress: "1"}
		if got := reply(r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestLateMessagesAboutAMomentNameIt(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, 11, 27, 15, 0, 0, 0, time.FixedZone("", 3600))
	once := &chat.Origin{Once: true, Slot: slot}
	for name, c := range map[string]struct {
		row  store.Outgoing
		late time.Duration
		text string
		mark bool
	}{
		"not late":                 {store.Outgoing{Origin: once}, lateAfter, "pills", false},
		"late":                     {store.Outgoing{Origin: once}, lateAfter + 1, "(planned 15:00) pills", true},
		"on the next day":          {store.Outgoing{Origin: once}, 9 * time.Hour, "(planned Fri 27 Nov 15:00) pills", true},
		"before the end of a day":  {store.Outgoing{Origin: once}, 9*time.Hour - 1, "(planned 15:00) pills", true},
		"of a job that repeats":    {store.Outgoing{Origin: &chat.Origin{Slot: slot}}, time.Hour, "pills", false},
		"an answer to a person":    {store.Outgoing{}, time.Hour, "pills", false},
		"a part arrived in time":   {store.Outgoing{Origin: once, Progress: "1"}, time.Hour, "pills", false},
		"a part arrived late":      {store.Outgoing{Origin: once, Progress: plannedMark + "1"}, time.Hour, "(planned 15:00) pills", true},
		"a file":                   {store.Outgoing{Origin: once, File: new(chat.Attachment)}, time.Hour, "pills", false},
		"a notice about a failure": {store.Outgoing{Origin: once, Kind: store.KindNotice}, time.Hour, "pills", false},
	} {
		c.row.Text = "pills"
		if c.row.Kind == "" {
			c.row.Kind = store.KindReply
		}
		mark := datePlanned(&c.row, slot.Add(c.late))
		if c.row.Text != c.text || (mark != "") != c.mark || strings.Contains(c.row.Progress, plannedMark) {
			t.Errorf("%s: %q, %q, progress %q", name, c.row.Text, mark, c.row.Progress)
		}
	}
}

func TestAnAttemptIsBoundedByWhatItSends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for want, row := range map[time.Duration]store.Outgoing{sendTimeout: {}, fileTimeout: {File: new(chat.Attachment)}} {
			began := time.Now()
			ctx, cancel := sendContext(t.Context(), row)
			<-ctx.Done()
			if took := time.Since(began); took != want || !errors.Is(context.Cause(ctx), errSendTime) {
				t.Errorf("it ended after %s with %v, want %s", took, context.Cause(ctx), want)
			}
			cancel()
		}
	})
}
