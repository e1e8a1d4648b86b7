package memory

import (
	"cmp"
	"context"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// PutJob makes or changes a job, see cron.JobStore.
func (s *Store) PutJob(ctx context.Context, p cron.PutParams) (cron.PutResult, error) {
	var out cron.PutResult
	err := s.do(ctx, "PutJob", func(now time.Time) (err error) {
		first := false
		out, err = idempotent(s, p.IdempotencyKey, now, func() (cron.PutResult, error) {
			first = true
			return s.put(p, now)
		})
		out.Repeated = !first
		return err
	})
	return out, err
}

func (s *Store) put(p cron.PutParams, now time.Time) (out cron.PutResult, err error) {
	old, err := s.crons.toPut(&p)
	if err != nil {
		return out, err
	}
	if old == nil && s.crons.full(p) {
		return out, chat.ErrLimit
	}
	given, fires := s.crons.given(old), 0
	if old != nil && p.EndWaiting != "" {
		_, fires = s.waiting(old.ID, false)
		*given = given.Unfired(fires)
	}
	job, err := p.Change(given, now)
	if err != nil {
		return out, err
	}
	before := ""
	switch {
	case old == nil && job == nil:
		return out, nil
	case old != nil && (job == nil || sameJob(s.crons.view(old), *job)):
		out.Job = s.crons.view(old)
		return out, nil
	case old != nil:
		before = old.Revision
		if fires > 0 {
			out.Ended = s.endWaiting(old.ID, false, cron.CancelParams{Reason: p.EndWaiting}, now)
		}
	}
	if err := s.crons.store(keptJob(*job)); err != nil {
		return out, err
	}
	s.crons.write(p.Audit.Between(before, job.Revision), now)
	out.Finished = s.crons.takeFinished()
	out.Job, out.Created, out.Updated = s.crons.view(s.crons.jobs[job.ID]), old == nil, old != nil
	return out, nil
}

// toPut is the job that PutJob changes; nil = it makes one.
func (c *crons) toPut(p *cron.PutParams) (*cron.Job, error) {
	old := c.jobs[c.keys[jobKey{p.Owner, p.Key}]]
	if !p.ByName() || old != nil && p.KeyGiven {
		return old, nil
	}
	var same []*cron.Job
	for _, j := range c.jobs {
		if j.Owner == p.Owner && j.Name == p.Name {
			same = append(same, j)
		}
	}
	slices.SortFunc(same, func(a, b *cron.Job) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	var ids []string
	for _, j := range same {
		ids = append(ids, j.ID)
	}
	id, err := p.Namesake(ids)
	if id != "" {
		old = c.jobs[id]
	}
	return old, err
}

// given is the old job as a Change gets it: a copy.
func (c *crons) given(j *cron.Job) *cron.Job {
	if j == nil {
		return nil
	}
	view := c.view(j)
	return &view
}

func (c *crons) full(p cron.PutParams) bool {
	own := 0
	for _, j := range c.jobs {
		if j.Owner == p.Owner {
			own++
		}
	}
	return (p.MaxOfOwner > 0 && own >= p.MaxOfOwner) || (p.MaxTotal > 0 && len(c.jobs) >= p.MaxTotal)
}

// ChangeJob changes or removes a job, see cron.JobStore.
func (s *Store) ChangeJob(ctx context.Context, p cron.ChangeParams) (cron.Changed, error) {
	var out cron.Changed
	err := s.do(ctx, "ChangeJob", func(now time.Time) error {
		old := s.crons.visible(p.ID, p.Visible)
		if old == nil {
			return chat.ErrNotFound
		}
		return s.changeJob(&p, old, &out, now)
	})
	return out, err
}

func (s *Store) changeJob(p *cron.ChangeParams, old *cron.Job, out *cron.Changed, now time.Time) error {
	given, all := s.crons.given(old), p.EndWaiting == cron.ReasonRemoved
	if p.EndWaiting != "" {
		_, fires := s.waiting(p.ID, all)
		*given = given.Unfired(fires)
	}
	out.Old = s.crons.view(old)
	job, err := p.Change(*given, now)
	if err != nil {
		return err
	}
	out.Changed = job == nil || !sameJob(out.Old, *job)
	if err := s.change(old, job, out.Changed); err != nil {
		return err
	}
	if p.Skipped != nil && p.Skipped.ID != "" {
		s.crons.record(*p.Skipped, now)
	}
	switch {
	case p.CancelActive:
		out.Ended = s.cancelRuns(s.crons.active(p.ID), cron.CancelParams{Reason: p.CancelReason, By: p.By}, now)
	case p.EndWaiting != "":
		out.Ended = s.endWaiting(p.ID, all, cron.CancelParams{Reason: p.EndWaiting, By: p.By}, now)
	}
	out.Finished = s.crons.takeFinished()
	if job != nil {
		view := s.crons.view(s.crons.jobs[p.ID])
		out.Job = &view
	}
	if out.Changed || len(out.Ended) > 0 {
		s.crons.write(p.Audit.Between(out.Revisions()), now)
	}
	return nil
}

func (s *Store) change(old, job *cron.Job, changed bool) error {
	switch {
	case job == nil:
		s.crons.remove(old)
	case changed:
		return s.crons.store(keptJob(*job))
	}
	return nil
}

// Job reads one; chat.ErrNotFound.
func (s *Store) Job(ctx context.Context, id, visible string) (cron.Job, error) {
	var out cron.Job
	err := s.do(ctx, "Job", func(now time.Time) error {
		j := s.crons.visible(id, visible)
		if j == nil {
			return chat.ErrNotFound
		}
		out = s.crons.view(j)
		return nil
	})
	return out, err
}

// Jobs lists, see cron.JobFilter. A Limit of 0 is no bound.
func (s *Store) Jobs(ctx context.Context, f cron.JobFilter) (cron.JobPage, error) {
	var out cron.JobPage
	err := s.do(ctx, "Jobs", func(now time.Time) error {
		var list []cron.Job
		for _, j := range s.crons.jobs {
			if !wantedJob(j, f) {
				continue
			}
			view := s.crons.view(j)
			if f.WithoutPayload {
				view.Payload = cron.Payload{}
			}
			list = append(list, view)
		}
		sortJobs(list, f)
		out.Total, out.Revision = len(list), s.crons.listRevision(f.Visible)
		out.Jobs = within(piece(list, f.Limit, f.Offset), store.NewBudget(0), jobBytes)
		return nil
	})
	return out, err
}

// listRevision changes when a job is added, changed or removed; for one owner when one of that owner's is.
func (c *crons) listRevision(visible string) string {
	if visible == "" {
		return "r" + strconv.Itoa(c.changes)
	}
	var sum, n uint64
	for _, j := range c.jobs {
		if j.Owner != visible {
			continue
		}
		h := fnv.New64a()
		_, _ = io.WriteString(h, j.ID+" "+j.Revision+" "+strconv.FormatInt(j.UpdatedAt.UnixMilli(), 10)) //nolint:errcheck // a hash takes everything
		sum, n = sum^h.Sum64(), n+1
	}
	return "r" + strconv.FormatUint(sum^n, 36)
}

// jobBytes are the bytes of the texts of a job.
func jobBytes(j cron.Job) int {
	parts, err := cron.EncodeParts(j)
	if err != nil {
		panic("memory: a job that cannot be stored: " + err.Error()) // it was encoded when it was stored
	}
	return len(parts.Payload) + len(parts.Delivery) + len(parts.Alert) + len(parts.Policy) + len(parts.Schedule) +
		len(j.Description) + len(j.Invalid) + len(j.State.LastError) + len(j.State.LastDeliveryError)
}

func wantedJob(j *cron.Job, f cron.JobFilter) bool {
	switch {
	case j.Owner == cron.SystemOwner && !f.IncludeSystem,
		f.Visible != "" && j.Owner != f.Visible,
		f.Enabled != nil && j.MayFire() != *f.Enabled,
		f.Kind != "" && j.Schedule.Kind != f.Kind,
		f.LastState != "" && j.State.LastState != f.LastState,
		f.NeverRan && j.State.LastState != "",
		f.Agent != "" && j.Agent != f.Agent:
		return false
	}
	return contains(f.Query, j.ID, j.Name, j.Key, j.Description)
}

// contains reports whether one of the texts contains the query, in any case of the letters. An empty query is in all. Texts of megabytes are looked
// through as they are first, which costs far less than their copies in small letters.
func contains(query string, texts ...string) bool {
	query = strings.ToLower(query)
	return query == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(text, query) || strings.Contains(strings.ToLower(text), query)
	})
}

func sortJobs(list []cron.Job, f cron.JobFilter) {
	slices.SortFunc(list, func(a, b cron.Job) int {
		var order int
		switch f.SortBy {
		case "name":
			order = cmp.Compare(a.Name, b.Name)
		case "id":
			order = cmp.Compare(a.ID, b.ID)
		case "updatedAt":
			order = a.UpdatedAt.Compare(b.UpdatedAt)
		default:
			if a.State.NextRunAt.IsZero() != b.State.NextRunAt.IsZero() {
				return cmp.Compare(b.State.NextRunAt.UnixMilli(), a.State.NextRunAt.UnixMilli()) // zero comes last
			}
			order = a.State.NextRunAt.Compare(b.State.NextRunAt)
		}
		if f.Descending {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.ID, b.ID))
	})
}

func piece[V any](list []V, limit, offset int) []V {
	list = list[min(max(offset, 0), len(list)):]
	if limit > 0 {
		list = list[:min(limit, len(list))]
	}
	return list
}
