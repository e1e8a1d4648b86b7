package migrations

import (
	"context"
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// Step is one numbered change of the schema.
type Step struct {
	Version int64
	Name    string
	Applied bool
	// AppliedAt is zero for a step that is not applied.
	AppliedAt time.Time
}

// Steps lists the steps of a database, oldest first.
func Steps(ctx context.Context, p *goose.Provider) ([]Step, error) {
	status, err := p.Status(ctx)
	list := make([]Step, 0, len(status))
	for _, s := range status {
		list = append(list, Step{Version: s.Source.Version, Name: path.Base(s.Source.Path), Applied: s.State == goose.StateApplied, AppliedAt: s.AppliedAt})
	}
	return list, err
}
