package dispatch_test

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// allRuns lists the history of the job with what is claimed ahead.
func (m *jobModel) allRuns() []cron.Run {
	page, err := m.st.Runs(m.t.Context(), cron.RunFilter{JobID: m.plain.id, IncludeActive: true, Ahead: true})
	if err != nil {
		m.t.Fatal(err)
	}
	return page.Runs
}

// ReleaseClaims of a process that was killed does nothing.
func (s dying) ReleaseClaims(ctx context.Context, node string) (int, error) {
	if s.gone() {
		return 0, chat.ErrStoreUnavailable
	}
	return s.cronStore.ReleaseClaims(ctx, node)
}
