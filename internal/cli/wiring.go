package cli

import (
	"context"

	"laneway/internal/app"
	"laneway/internal/config"
	"laneway/internal/process"
)

// ownGateway is the service of this program.
type ownGateway struct{ o Options }

// Serve runs the process that package app wires.
func (g ownGateway) Serve(ctx context.Context, in serveInput) error {
	var reaper *process.Reaper
	if g.o.Adopt {
		var err error
		if reaper, err = process.NewReaper(in.Logger); err != nil {
			in.Logger.WarnContext(ctx, "programs of agents that leave their process group outlive their turn; run the gateway in a container to bound them", "err", err)
		}
	}
	return app.Run(ctx, app.Options{
		Loaded: in.Loaded, Hold: in.Hold, Credentials: in.Credentials, Version: in.Version.Version, Commit: in.Version.Commit, Log: in.Logger, Ready: in.Ready,
		LookupEnv: g.o.LookupEnv, Environ: g.o.Environ(), Hurry: in.Signals.Now, Reload: in.Signals.Reload, Restart: in.Signals.Restart, Reread: in.Reread,
		RereadCredentials: in.RereadCredentials, Program: g.o.Program, Reaper: reaper,
	})
}

type schema struct{}

// Migrate changes the schema of the configured store.
func (schema) Migrate(ctx context.Context, cfg config.Config, action string, force bool) ([]migration, error) {
	steps, err := app.Migrate(ctx, cfg, action, force)
	if err != nil {
		return nil, err
	}
	list := make([]migration, 0, len(steps))
	for _, s := range steps {
		m := migration{Version: s.Version, Name: s.Name, Applied: s.Applied}
		if !s.AppliedAt.IsZero() {
			m.AppliedAtMs = s.AppliedAt.UnixMilli()
		}
		list = append(list, m)
	}
	return list, nil
}
