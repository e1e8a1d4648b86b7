package service_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule/zonetest"
	"laneway/internal/cron/service"
)

func TestAnEqualAddWritesNothingAndAnotherOneUpdates(t *testing.T) {
	t.Parallel()
	p := open(t)
	first := p.add(map[string]any{"key": "k"})
	equal(t, "events", p.takeEvents(), "added digest")
	same := p.add(map[string]any{"key": "k"})
	equal(t, "id", same.ID, first.ID)
	equal(t, "events of an equal add", p.takeEvents(), "")
	other := p.add(map[string]any{"key": "k", "name": "news letter"})
	equal(t, "events of another add", p.takeEvents(), "updated news letter")
	if other.ID != first.ID || other.Revision == first.Revision {
		t.Errorf("another add made %+v of %+v", other, first)
	}
}

func TestAnAddIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	p := open(t)
	user := chat.Caller{Principal: "box:7", Own: true}
	for range 2 {
		if _, err := p.Editor.AddInChat(t.Context(), members(t, map[string]any{"key": time.Now().String()}), user, nil); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		change map[string]any
		by     chat.Caller
		want   string
	}{
		"the name of the gateway":   {nil, chat.Caller{Principal: cron.SystemOwner}, "the gateway's own"},
		"two keys":                  {map[string]any{"key": "a", "declarationKey": "b"}, operator, "are different"},
		"a blank key":               {map[string]any{"key": " "}, operator, "at /key"},
		"a schedule without a fire": {map[string]any{"schedule": map[string]any{"kind": "at", "at": "2001-01-01T00:00:00Z"}}, operator, "schedule"},
		"another one's session":     {map[string]any{"sessionTarget": "session:anna"}, bob, "session not found"},
		"an answer to a channel":    {map[string]any{"delivery": map[string]any{"mode": "announce", "channel": "telegram", "to": "1"}}, bob, "telegram"},
		"one job too many":          {map[string]any{"key": "third"}, user, "too many jobs"},
	} {
		if c.by.Principal == user.Principal {
			c.change["delivery"] = map[string]any{"mode": "none"}
		}
		_, err := p.Editor.Add(t.Context(), members(t, c.change), c.by, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", what, err, c.want)
		}
	}
	page, err := p.Editor.Jobs(t.Context(), cron.JobFilter{Limit: 10}, operator)
	if err != nil || page.Total != 2 {
		t.Errorf("%d jobs are stored, %v; want the two of the chat user", page.Total, err)
	}
}

func TestCallersWithoutAdminAreBounded(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration) map[string]any {
		return map[string]any{"kind": "every", "everyMs": d.Milliseconds()}
	}
	far := map[string]any{"kind": "at", "at": noon.AddDate(1, 0, 2).Format(time.RFC3339)}
	admin := chat.Caller{Principal: "root", Own: true, Scopes: []string{chat.ScopeAdmin}}
	for name, by := range map[string]chat.Caller{
		"a write token": bob, "a chat user": {Principal: "box:7", Own: true, Scopes: []string{chat.ScopeWrite}},
		"an agent of the operator": {Principal: operator.Principal, Own: true, Scopes: []string{chat.ScopeWrite}}, "a caller without scopes": {Principal: "eve"},
	} {
		p := open(t)
		for what, c := range map[string]struct {
			schedule map[string]any
			want     string
		}{
			"a job each second":  {every(time.Second), "out of range 60000-"},
			"a job in two years": {far, "at most 366 days"},
			"six stars":          {map[string]any{"kind": "cron", "expr": "* * * * * *"}, "1m0s"},
		} {
			m := members(t, map[string]any{"schedule": c.schedule, "key": what})
			if _, err := p.Editor.AddInChat(t.Context(), m, by, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want %q in it", name, what, err, c.want)
			}
			if _, err := p.Editor.AddInChat(t.Context(), m, admin, nil); err != nil {
				t.Errorf("an admin, %s: %v", what, err)
			}
		}
		var last cron.Job
		for i := range 2 {
			put, err := p.Editor.AddInChat(t.Context(), members(t, map[string]any{"key": strconv.Itoa(i)}), by, nil)
			if err != nil {
				t.Fatal(err)
			}
			last = put.Job
		}
		if _, err := p.Editor.AddInChat(t.Context(), members(t, map[string]any{"key": "third"}), by, nil); err == nil || !strings.Contains(err.Error(), "too many jobs") {
			t.Errorf("%s, a third job of two: %v", name, err)
		}
		if _, err := p.Editor.Update(t.Context(), last.ID, only(t, map[string]any{"schedule": every(time.Second)}), "", by); err == nil || !strings.Contains(err.Error(), "out of range 60000-") {
			t.Errorf("%s changes a job to each second: %v", name, err)
		}
	}
}

func TestAPreviewOfAScheduleHasTheBoundsThatItsJobWouldHave(t *testing.T) {
	t.Parallel()
	p := open(t)
	hour := func(n int) int64 { return noon.Add(time.Duration(n) * time.Hour).UnixMilli() }
	hourly := map[string]any{"kind": "cron", "expr": "0 * * * *", "tz": "UTC"}
	for name, c := range map[string]struct {
		bounds map[string]any
		want   []int64
	}{
		"none":         {nil, []int64{hour(1), hour(2), hour(3)}},
		"from":         {map[string]any{"startsAtMs": hour(5)}, []int64{hour(5), hour(6), hour(7)}},
		"until":        {map[string]any{"endsAtMs": hour(2)}, []int64{hour(1), hour(2)}},
		"runs":         {map[string]any{"maxRuns": 1}, []int64{hour(1)}},
		"nothing left": {map[string]any{"endsAtMs": hour(-1)}, nil},
	} {
		asked := map[string]any{"schedule": hourly}
		maps.Copy(asked, c.bounds)
		got, err := p.Editor.Preview(t.Context(), cron.PreviewParams{Schedule: only(t, asked), Count: 3}, operator)
		if err != nil {
			t.Fatal(name, err)
		}
		var slots []int64
		for _, f := range got.Fires {
			slots = append(slots, f.ScheduledForMs)
		}
		if !slices.Equal(slots, c.want) {
			t.Errorf("%s: slots %d, want %d", name, slots, c.want)
		}
	}
}

func TestAPatchOfAnotherRevisionChangesNothing(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	patch := only(t, map[string]any{"name": "other"})
	_, err := p.Editor.Update(t.Context(), j.ID, patch, "sha256:old", operator)
	if err == nil || !strings.Contains(err.Error(), "changed since it was read") {
		t.Errorf("the patch of an old revision: %v", err)
	}
	if _, err := p.Editor.Update(t.Context(), j.ID, patch, "", bob); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the patch of another owner: %v", err)
	}
	now, err := p.Editor.Job(t.Context(), j.ID, operator)
	if err != nil || now.Revision != j.Revision {
		t.Errorf("the job is %+v, %v", now, err)
	}
	next, err := p.Editor.Update(t.Context(), j.ID, patch, j.Revision, operator)
	if err != nil || next.Name != "other" {
		t.Errorf("the patch of the revision: %+v, %v", next, err)
	}
}

func TestAPatchChecksOnlyTargetsThatItChanges(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *service.Config) { c.MaxJobsOfUser = 9 })
	user := chat.Caller{Principal: "box:work:7", Own: true}
	gateway := chat.Caller{Principal: operator.Principal, Own: true}
	announce := func(channel, to string) map[string]any {
		return map[string]any{"mode": "announce", "channel": channel, "to": to}
	}
	for what, c := range map[string]struct {
		by              chat.Caller
		before, changes map[string]any
		want            string
	}{
		"the text of a job that answers in a private chat": {user, map[string]any{"delivery": announce("box:work", "7")}, nil, ""},
		"the text of a job that answers in a group":        {user, map[string]any{"delivery": announce("box:work", "-5")}, nil, ""},
		"the text of a job that answers in a main session": {gateway, map[string]any{"delivery": announce("web", "agent:main:main")}, nil, ""},
		"the text of a job that runs in a main session":    {gateway, map[string]any{"sessionTarget": "main"}, nil, ""},
		"the text of a job whose alerts go to a group":     {user, map[string]any{"failureAlert": announce("box:work", "-5")}, nil, ""},
		"the same chat, given again":                       {user, map[string]any{"delivery": announce("box:work", "-5")}, map[string]any{"delivery": announce("box:work", "-5")}, ""},
		"from a group to the private chat":                 {user, map[string]any{"delivery": announce("box:work", "-5")}, map[string]any{"delivery": announce("box:work", "7")}, ""},
		"to the chat of another person":                    {user, map[string]any{"delivery": announce("box:work", "7")}, map[string]any{"delivery": announce("box:work", "8")}, "has no chat on box:work"},
		"to the main session":                              {user, map[string]any{"delivery": announce("box:work", "7")}, map[string]any{"delivery": announce("web", "agent:main:main")}, "session not found"},
		"alerts to the chat of another person":             {user, map[string]any{"delivery": announce("box:work", "7")}, map[string]any{"failureAlert": announce("box:work", "8")}, "has no chat on box:work"},
		"into the session of another principal":            {user, nil, map[string]any{"sessionTarget": "session:anna"}, "session not found"},
		"a chat for a credential":                          {bob, nil, map[string]any{"delivery": announce("box:work", "7")}, "has no chat on box:work"},
	} {
		put, err := p.Editor.AddInChat(t.Context(), members(t, with(c.before, "key", what)), c.by, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		_, err = p.Editor.Update(t.Context(), put.Job.ID, only(t, with(c.changes, "payload", map[string]any{"kind": "agentTurn", "message": "other"})), "", c.by)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", what, err, c.want)
		}
	}
}

// with returns members with one more.
func with(m map[string]any, name string, value any) map[string]any {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]any{}
	}
	out[name] = value
	return out
}

func TestAPauseStopsWhatWaitsAndAResumeCountsWhatPassed(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	if _, err := p.Editor.Pause(t.Context(), j.ID, "holidays", p.now.Add(-time.Hour), operator); err == nil {
		t.Error("a pause with an end in the past is accepted")
	}
	if _, err := p.Editor.Pause(t.Context(), j.ID, "holidays", time.Time{}, operator); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(5*time.Minute + time.Second)
	p.takeEvents()
	resumed, err := p.Editor.Resume(t.Context(), j.ID, operator)
	if err != nil || resumed.Pause != nil || !resumed.State.Next.After(p.now) {
		t.Fatalf("resumed: %+v, %v", resumed, err)
	}
	equal(t, "events", p.takeEvents(), "finished digest skipped, updated digest")
	page, err := p.Runs.Ledger(t.Context(), cron.RunFilter{JobID: j.ID}, operator)
	if err != nil || len(page.Runs) != 1 || page.Runs[0].SlotCount != 5 || page.Runs[0].Reason != cron.ReasonPaused {
		t.Errorf("the ledger has %+v, %v; want one row for five slots", page.Runs, err)
	}
}

func TestAPauseIsBroughtAlongByAnAddAlone(t *testing.T) {
	t.Parallel()
	p := open(t)
	paused := func(note string) map[string]any {
		return map[string]any{"key": "k", "paused": map[string]any{"note": note, "by": "ann", "atMs": 5}}
	}
	p.add(paused("first"))
	if j := p.add(paused("second")); j.Pause == nil || j.Pause.Note != "first" || j.Pause.By != "ann" {
		t.Errorf("after a second add the pause is %+v, want the first one", j.Pause)
	}
	j := p.add(map[string]any{"key": "k"})
	if j.Pause == nil {
		t.Error("an add ends a pause")
	}
	if _, err := p.Editor.Update(t.Context(), j.ID, only(t, map[string]any{"paused": nil}), "", operator); err == nil || !strings.Contains(err.Error(), "paused") {
		t.Errorf("a patch with the member paused: %v", err)
	}
}

// A job whose time passed during its pause is resumed, and one that is disabled is enabled.
func TestAMomentThatPassedIsNotPromisedAgain(t *testing.T) {
	t.Parallel()
	p := open(t)
	soon := map[string]any{"kind": "at", "at": noon.Add(time.Minute).Format(time.RFC3339)}
	paused, off := p.add(map[string]any{"key": "a", "schedule": soon}), p.add(map[string]any{"key": "b", "schedule": soon, "enabled": false})
	if _, err := p.Editor.Pause(t.Context(), paused.ID, "probe", time.Time{}, operator); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(time.Hour)
	_, resumed := p.Editor.Resume(t.Context(), paused.ID, operator)
	_, enabled := p.Editor.Update(t.Context(), off.ID, only(t, map[string]any{"enabled": true}), "", operator)
	for what, err := range map[string]error{"a resume": resumed, "an edit": enabled} {
		if err == nil || !strings.Contains(err.Error(), "no fire any more") {
			t.Errorf("%s of a job whose moment has passed: %v", what, err)
		}
	}
	for _, id := range []string{paused.ID, off.ID} {
		if j, err := p.Editor.Job(t.Context(), id, operator); err != nil || j.MayFire() || !j.State.NextRunAt.IsZero() {
			t.Errorf("it shows %+v, %v", j, err)
		}
	}
}

// A job is disabled by a process with newer rules, at whose 9:10 its next slot is 9:00 of the next
// day, and enabled by one at whose clock it is 8:30: 9:00 does not come again that day.
func TestEnabledJobFiresNoLocalTimeAgain(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	rules := func(release, rule string) {
		t.Setenv("ZONEINFO", zonetest.Write(t, release, map[string]string{"America/Vancouver": rule}))
	}
	edit := func(p *process, id string, change map[string]any) cron.Job {
		j, err := p.Editor.Update(t.Context(), id, only(t, change), "", operator)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	for name, between := range map[string]map[string]any{"at once": nil, "renamed": {"name": "other"}, "with jitter": {"jitterMs": 60_000}} {
		rules("2026f", "<-07>7")
		p := open(t)
		p.now = time.Date(2026, 12, 10, 16, 10, 0, 0, time.UTC)
		j := p.add(map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "0 9 * * *", "tz": "America/Vancouver"}})
		off := edit(p, j.ID, map[string]any{"enabled": false})
		if between != nil {
			off = edit(p, j.ID, between)
		}
		if !off.State.NextRunAt.IsZero() || off.MayFire() {
			t.Errorf("%s: the disabled job fires at %s", name, off.State.NextRunAt)
		}
		rules("2026a", "PST8PDT,M3.2.0,M11.1.0")
		p.now = p.now.Add(20 * time.Minute)
		p.join(p.store)
		if on, want := edit(p, j.ID, map[string]any{"enabled": true}), time.Date(2026, 12, 11, 17, 0, 0, 0, time.UTC); !on.State.Next.Equal(want) {
			t.Errorf("%s: the next slot is %s, want %s", name, on.State.Next, want)
		}
		edit(p, j.ID, map[string]any{"enabled": false})
		other := edit(p, j.ID, map[string]any{"enabled": true, "schedule": map[string]any{"kind": "cron", "expr": "30 9 * * *", "tz": "America/Vancouver"}})
		if want := time.Date(2026, 12, 10, 17, 30, 0, 0, time.UTC); !other.State.Next.Equal(want) {
			t.Errorf("%s: another schedule fires at %s, want %s", name, other.State.Next, want)
		}
	}
}

func TestARemovedJobStopsItsRuns(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	id, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.takeEvents()
	if err := p.Editor.Remove(t.Context(), j.ID, true, operator); err != nil {
		t.Fatal(err)
	}
	equal(t, "events", p.takeEvents(), "finished digest cancelled, removed digest")
	if len(p.stopped) != 1 || !strings.HasPrefix(p.stopped[0], id+" removed") {
		t.Errorf("stopped %q, want %s", p.stopped, id)
	}
	if _, err := p.Editor.Job(t.Context(), j.ID, operator); err == nil {
		t.Error("the job can be read after its removal")
	}
}

// An edit keeps the fires that a job has had, its jitter, and the anchor of an interval that stays.
// A preview that knew the schedule alone promised other fires.
func TestThePreviewOfAnEditHasTheFiresOfTheEditedJob(t *testing.T) {
	t.Parallel()
	hour := func(n int) int64 { return noon.Add(time.Duration(n) * time.Hour).UnixMilli() }
	hourly := map[string]any{"kind": "cron", "expr": "0 * * * *", "tz": "UTC"}
	for name, c := range map[string]struct {
		job, patch map[string]any
		fires      int
	}{
		"another schedule":     {map[string]any{"schedule": hourly, "maxRuns": 3}, map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "30 * * * *"}}, 1},
		"more runs":            {map[string]any{"schedule": hourly, "maxRuns": 3}, map[string]any{"maxRuns": 4}, 2},
		"runs without a bound": {map[string]any{"schedule": hourly, "maxRuns": 3}, map[string]any{"maxRuns": nil}, 5},
		"a start and an end":   {map[string]any{"schedule": hourly, "maxRuns": 9}, map[string]any{"startsAtMs": hour(4), "endsAtMs": hour(5)}, 2},
		"the same interval":    {map[string]any{"schedule": map[string]any{"kind": "every", "everyMs": 7_000_000}}, map[string]any{"schedule": map[string]any{"kind": "every", "everyMs": 7_000_000}, "maxRuns": 9}, 5},
		"with jitter":          {map[string]any{"schedule": hourly, "jitterMs": 600_000}, map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "30 * * * *"}}, 5},
	} {
		p := open(t)
		j := p.add(c.job)
		_, err := p.store.ChangeJob(t.Context(), cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			old.State.Fired = 2
			return &old, nil
		}})
		if err != nil {
			t.Fatal(name, err)
		}
		p.now = noon.Add(time.Minute)
		ask := func(m cron.Members) cron.Preview {
			t.Helper()
			got, err := p.Editor.Preview(t.Context(), cron.PreviewParams{ID: j.ID, Schedule: m, Count: 5}, operator)
			if err != nil {
				t.Fatal(name, err)
			}
			return got
		}
		patch := only(t, c.patch)
		before := ask(patch)
		if _, err := p.Editor.Update(t.Context(), j.ID, patch, "", operator); err != nil {
			t.Fatal(name, err)
		}
		if after := ask(nil); len(before.Fires) != c.fires || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the preview of the edit is %+v, that of the edited job %+v; want %d fires", name, before, after, c.fires)
		}
	}
	if _, err := open(t).Editor.Preview(t.Context(), cron.PreviewParams{ID: "none", Schedule: only(t, map[string]any{"maxRuns": 4})}, operator); err == nil {
		t.Error("the edit of a job that does not exist has a preview")
	}
}

func TestASlotIsExplainedByWhatTheStoreKeeps(t *testing.T) {
	t.Parallel()
	p := open(t)
	by := chat.Caller{Principal: "ann", Scopes: []string{chat.ScopeAdmin}}
	put, err := p.Editor.Add(t.Context(), members(t, map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}}), by, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(a cron.ExplainParams) cron.Explained {
		t.Helper()
		a.ID = put.Job.ID
		found, err := p.Editor.Explain(t.Context(), a, by)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if x := ask(cron.ExplainParams{At: "9:00"}); x.Zone != "Europe/Berlin" || x.Slots[0].Why != cron.WhyMadeLater || !x.Slots[0].Slot.Equal(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("the slot before the job was made: %+v", x)
	}
	p.now = p.now.Add(10 * time.Hour)
	if _, err := p.Editor.Pause(t.Context(), put.Job.ID, "holidays", time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	p.now = noon.Add(24 * time.Hour)
	x := ask(cron.ExplainParams{At: "9:00"}).Slots[0]
	if want := "The job has been paused since Fri 20 Nov 23:00 by ann (holidays)."; x.Text != want || x.Why != cron.WhyPaused {
		t.Errorf("got %s: %s, want %s", x.Why, x.Text, want)
	}
	whole := ask(cron.ExplainParams{From: noon, Until: noon.Add(26 * time.Hour)})
	if len(whole.Slots) != 1 || whole.Slots[0].Text != x.Text || len(whole.Slots[0].Changes) == 0 || whole.Slots[0].Changes[0].Who != "ann" {
		t.Errorf("the slots of 26 hours are %+v", whole.Slots)
	}
	for name, bad := range map[string]cron.ExplainParams{
		"no time":   {ID: put.Job.ID, At: "soon"},
		"too long":  {ID: put.Job.ID, From: noon, Until: noon.Add(27 * time.Hour)},
		"backwards": {ID: put.Job.ID, From: noon, Until: noon.Add(-time.Hour)},
		"no job":    {ID: "none", At: "9:00"},
	} {
		if _, err := p.Editor.Explain(t.Context(), bad, by); err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	if _, err := p.Editor.Explain(t.Context(), cron.ExplainParams{ID: put.Job.ID, At: "9:00"}, bob); errors.Is(err, nil) {
		t.Error("another person can read about the job")
	}
}

// The clock of the host differs from the database's, which decides about every moment.
func TestWordsFollowTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]time.Time{"behind the host": time.Now().Add(-5 * time.Minute), "ahead of the host": time.Now().Add(5 * time.Minute)} {
		now := now.UTC().Truncate(time.Millisecond)
		p := open(t)
		p.now = now
		for form, at := range map[string]string{"words": "in 1m", "RFC 3339": now.Add(time.Minute).Format(time.RFC3339Nano)} {
			m := members(t, map[string]any{"schedule": map[string]any{"kind": "at", "at": at}, "key": form, "startsAtMs": "in 30s", "endsAtMs": "in 2 days"})
			put, err := p.Editor.AddInChat(t.Context(), m, operator, nil)
			if err != nil {
				t.Errorf("%s, %s: %v", name, form, err)
				continue
			}
			equal(t, name+", "+form+": at", put.Job.Schedule.At.UTC(), now.Add(time.Minute))
			equal(t, name+", "+form+": startsAt", put.Job.StartsAt.UTC(), now.Add(30*time.Second))
			equal(t, name+", "+form+": endsAt", put.Job.EndsAt.UTC(), now.Add(48*time.Hour))
		}
		past := members(t, map[string]any{"schedule": map[string]any{"kind": "at", "at": now.Add(-2 * time.Minute).Format(time.RFC3339Nano)}})
		if _, err := p.Editor.Add(t.Context(), past, operator, nil); err == nil || !strings.Contains(err.Error(), "before now") {
			t.Errorf("%s: a moment that has passed: %v", name, err)
		}
		job := p.add(map[string]any{"key": "edited"})
		job, err := p.Editor.Update(t.Context(), job.ID, only(t, map[string]any{"schedule": map[string]any{"kind": "at", "at": "in 3m"}}), "", operator)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name+": an edit", job.Schedule.At.UTC(), now.Add(3*time.Minute))
		for words, want := range map[string]time.Duration{"in 2h0m0s": 2 * time.Hour, "30m ago": -30 * time.Minute, "now": 0} {
			at, err := p.Editor.Moment(t.Context(), job.ID, words, want <= 0, operator)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, name+": "+words, at.UTC(), now.Add(want))
		}
	}
}

func TestAccountThatNoGatewayHasIsSaid(t *testing.T) {
	t.Parallel()
	p := open(t)
	for to, want := range map[string]string{"box:work": "", "telegram": "no running gateway has an account of telegram, so nothing reaches telegram:4711", "last": ""} {
		d := map[string]any{"mode": "announce", "channel": to}
		if to != "last" {
			d["to"] = "4711"
		}
		put, err := p.Editor.Add(t.Context(), members(t, map[string]any{"key": to, "delivery": d}), operator, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(put.Job.Surprises(), "; "); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: the maker hears %q, want %q", to, got, want)
		}
		job, err := p.Editor.Update(t.Context(), put.Job.ID, only(t, map[string]any{"description": "x"}), "", operator)
		if err != nil {
			t.Fatal(err)
		}
		if got := job.Unserved; !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: an edit says %q, want %q", to, got, want)
		}
	}
}
