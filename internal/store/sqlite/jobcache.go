package sqlite

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"laneway/internal/cron"
)

const (
	// maxCachedJobs is how many jobs one of the two generations of the cache has. With an active run each, both have some 14 MiB.
	maxCachedJobs = 2048
	// maxCachedText is how many bytes the texts of a cached job have at most, maxCachedRuns how many active runs.
	maxCachedText, maxCachedRuns = 1024, 4
)

// jobCache has the jobs that the writer has read last, each as its row is within the transaction, with all of its active runs. The writer's connection is the
// only one that writes, and its goroutine is the only one that uses the cache, so a cached job is valid until a statement changes its row or one of
// its runs. A statement either keeps the cached job up to date (tx.execKept), or removes it (tx.execOf, tx.changeOf), or removes all of them: every other
// statement that may write one of the two tables. A rollback and a commit of another process empty the cache. A job that is not cached is read.
type jobCache struct {
	recent, older map[string]*cachedJob
	version       int64 // of the database when the transaction began, see sawVersion
}

// cachedJob is a job that can be decoded. Its state has no active runs. It is changed in place, and callers get copies.
type cachedJob struct {
	*storedJob

	active []activeRun // in the order of activeRuns
}

// activeRun is what a claim and a reader of the job see of an active run.
type activeRun struct {
	id, session string
	state       cron.RunState
	claimedAt   time.Time
	startedAt   time.Time
	slot        time.Time
	row         *compactRow // nil = only the table has it
}

// compactRow is the row of a compact run, see store.Compactable. Nothing changes it but its start, its end and what expands it.
type compactRow struct {
	run                   cron.Run
	principal, transcript string // transcript is the id, which no other row has: it stands for the version of the row
	entries               int64
}

// get is a job; nil = it is not cached.
func (c *jobCache) get(id string) *cachedJob {
	if j := c.recent[id]; j != nil {
		return j
	}
	j := c.older[id]
	if j != nil {
		c.add(j)
	}
	return j
}

// put adds a job as it was read, if it is within the bounds.
func (c *jobCache) put(j *cachedJob) {
	if j.unreadable || j.textBytes() > maxCachedText || len(j.active) > maxCachedRuns {
		return
	}
	c.add(j)
}

func (c *jobCache) add(j *cachedJob) {
	if c.recent == nil || len(c.recent) >= maxCachedJobs {
		c.recent, c.older = make(map[string]*cachedJob, 16), c.recent
	}
	c.recent[j.ID] = j
}

// drop removes a job; "" = all of them.
func (c *jobCache) drop(id string) {
	if id == "" {
		c.clear()
		return
	}
	delete(c.recent, id)
	delete(c.older, id)
}

func (c *jobCache) clear() { c.recent, c.older = nil, nil }

// sawVersion empties the cache when another process has committed: PRAGMA data_version is another number then.
func (c *jobCache) sawVersion(v int64) {
	if v != c.version {
		c.clear()
		c.version = v
	}
}

// launched adds the run that a claim has made.
func (c *jobCache) launched(r *activeRun) {
	job := r.row.run.JobID
	j := c.get(job)
	switch {
	case j == nil:
	case len(j.active) == maxCachedRuns:
		c.drop(job)
	default:
		j.active = append(j.active, *r)
		slices.SortFunc(j.active, func(a, b activeRun) int {
			return cmp.Or(a.claimedAt.Compare(b.claimedAt), a.slot.Compare(b.slot), cmp.Compare(a.id, b.id))
		})
	}
}

// compactRun is a run of the job whose row is cached, with a state; nil = there is none.
func (j *cachedJob) compactRun(id string, state cron.RunState) *activeRun {
	for i := range j.active {
		if r := &j.active[i]; r.id == id && r.state == state && r.row != nil {
			return r
		}
	}
	return nil
}

func (j *cachedJob) hasActive(id string) bool {
	return slices.ContainsFunc(j.active, func(r activeRun) bool { return r.id == id })
}

func (j *cachedJob) ended(id string) {
	j.active = slices.DeleteFunc(j.active, func(r activeRun) bool { return r.id == id })
}

// withRuns is the job as findJob returns it.
func (j *cachedJob) withRuns() *cron.Job {
	out := cloneJob(&j.Job)
	out.State.Queued = len(j.active)
	for i := range j.active {
		r := &j.active[i]
		if at := &out.State.RunningAt; r.state == cron.RunRunning && (at.IsZero() || r.startedAt.Before(*at)) {
			*at = r.startedAt
		}
	}
	return &out
}

// dueJob is a job with its active runs, as a decision gets it.
func dueJob(j *cron.Job, active []activeRun) cron.DueJob {
	d := cron.DueJob{Job: cloneJob(j)}
	if len(active) == 0 {
		return d
	}
	d.Active = make([]string, 0, len(active))
	for i := range active {
		r := &active[i]
		d.Active, d.Session = append(d.Active, r.id), r.session
		if r.state != cron.RunRunning {
			continue
		}
		if d.Running++; d.Running == 1 {
			d.Job.State.RunningAt = r.startedAt
		}
	}
	d.Job.State.Queued = len(d.Active)
	return d
}

func (j *storedJob) textBytes() int {
	p := &j.parts
	return len(p.Schedule) + len(p.TZ) + len(p.Payload) + len(p.Delivery) + len(p.Alert) + len(p.Policy) + len(j.Description)
}

// changesJobs reports whether a statement may write jobs or their runs: it names one of their tables and is no query.
func changesJobs(text string) bool {
	return !strings.HasPrefix(strings.TrimLeft(text, " \t\n"), "SELECT") && (strings.Contains(text, "cron_jobs") || strings.Contains(text, "cron_run_logs"))
}

// jobOfRun is the job of a run; "" = the id does not say.
func jobOfRun(id string) string {
	_, job, _, err := cron.ParseRunID(id)
	if err != nil {
		return ""
	}
	return job
}
