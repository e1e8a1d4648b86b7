package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"laneway/internal/app"
	"laneway/internal/config"
)

// migrator changes the schema of the configured database.
type migrator interface {
	// Migrate executes action (up, down by one step, status) and returns the resulting state of every migration, oldest first. Down returns
	// a *app.LiveNodesError while gateways use the database, unless force is set.
	Migrate(ctx context.Context, cfg config.Config, action string, force bool) ([]migration, error)
}

// migration is one step of the schema.
type migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
	// AppliedAtMs is 0 when it is not applied.
	AppliedAtMs int64 `json:"appliedAtMs,omitempty"`
}

type migrateCmd struct {
	Up     migrateUp     `cmd:"" help:"Apply all missing steps."`
	Down   migrateDown   `cmd:"" help:"Take the newest step back; for a downgrade of the program."`
	Status migrateStatus `cmd:"" help:"Show each step and whether it is applied."`
}

type migrateFlags struct {
	configFlags
	JSON bool `help:"Print JSON."`
}

type (
	migrateUp   struct{ migrateFlags }
	migrateDown struct {
		migrateFlags
		Force bool `help:"Take the step back although gateways use the database; each message fails until they are stopped."`
		Yes   bool `help:"Answer the question of --force with yes; required where there is no terminal."`
	}
	migrateStatus struct{ migrateFlags }
)

// Help is the example of the command.
func (*migrateUp) Help() string {
	return "Safe to run from several replicas at once.\n\nExample:\n\n    laneway migrate up --config laneway.yaml"
}

// Help is the example of the command.
func (*migrateDown) Help() string {
	return `Stop every gateway on the database first, and make a backup. While gateways use the database the command changes nothing and ends
with 1.

Example:

    laneway migrate down`
}

// Help is the example of the command.
func (*migrateStatus) Help() string { return "Example:\n\n    laneway migrate status --json" }

// Run applies missing migrations.
func (c *migrateUp) Run(ctx context.Context, env *environment) error {
	return c.run(ctx, env, "up", false)
}

// Run takes one step back. While gateways run, it asks first.
func (c *migrateDown) Run(ctx context.Context, env *environment) error {
	if c.Force && !c.Yes && env.terminal == nil {
		return usageError("--force asks a question, and this is no terminal; add --yes")
	}
	err := c.run(ctx, env, "down", false)
	var live *app.LiveNodesError
	if !errors.As(err, &live) {
		return err
	}
	if !c.Force {
		return fmt.Errorf("%w; nothing was changed (--force takes the step nevertheless)", err)
	}
	if !c.Yes {
		agreed, err := env.confirm(live.Error() + ". Take the step back nevertheless?")
		if err != nil {
			return err
		}
		if !agreed {
			return errors.New("nothing was changed")
		}
	}
	return c.run(ctx, env, "down", true)
}

// Run shows the steps.
func (c *migrateStatus) Run(ctx context.Context, env *environment) error {
	return c.run(ctx, env, "status", false)
}

func (c *migrateFlags) run(ctx context.Context, env *environment, action string, force bool) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	if action != "status" { // which changes nothing
		if err := config.PreflightStore(loaded); err != nil {
			return err
		}
	}
	steps, err := env.migrate.Migrate(ctx, loaded.Config, action, force)
	if err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"migrations": steps})
	}
	rows := [][]string{{"VERSION", "NAME", "STATE"}}
	for _, s := range steps {
		state := "missing"
		if s.Applied {
			state = "applied " + ago(env.now(), s.AppliedAtMs)
		}
		rows = append(rows, []string{strconv.FormatInt(s.Version, 10), s.Name, state})
	}
	return table(env.stdout, rows)
}
