package main

import (
	"context"
	"fmt"
	"strconv"

	"laneway/internal/config"
)

// migrator changes the schema of the configured database.
type migrator interface {
	// Migrate does action (up, down by one step, status) and returns the state of every migration afterwards, oldest first.
	Migrate(ctx context.Context, cfg config.Config, action string) ([]migration, error)
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
	Up     migrateUp     `cmd:"" help:"Apply everything that is missing."`
	Down   migrateDown   `cmd:"" help:"Take the newest step back; for a downgrade of the program."`
	Status migrateStatus `cmd:"" help:"Show each step and whether it is applied."`
}

type migrateFlags struct {
	configFlags
	JSON bool `help:"Print JSON."`
}

type (
	migrateUp     struct{ migrateFlags }
	migrateDown   struct{ migrateFlags }
	migrateStatus struct{ migrateFlags }
)

// Help is the example of the command.
func (*migrateUp) Help() string {
	return "Safe to run from several replicas at once.\n\nExample:\n\n    laneway migrate up --config laneway.yaml"
}

// Help is the example of the command.
func (*migrateDown) Help() string {
	return "Stop every gateway on the database first, and make a backup.\n\nExample:\n\n    laneway migrate down"
}

// Help is the example of the command.
func (*migrateStatus) Help() string { return "Example:\n\n    laneway migrate status --json" }

// Run applies what is missing.
func (c *migrateUp) Run(ctx context.Context, env *environment) error { return c.run(ctx, env, "up") }

// Run takes one step back.
func (c *migrateDown) Run(ctx context.Context, env *environment) error {
	return c.run(ctx, env, "down")
}

// Run shows the steps.
func (c *migrateStatus) Run(ctx context.Context, env *environment) error {
	return c.run(ctx, env, "status")
}

func (c *migrateFlags) run(ctx context.Context, env *environment, action string) error {
	loaded, err := c.load(env)
	if err != nil {
		return err
	}
	plan, err := config.Preflight(loaded)
	if err != nil {
		return err
	}
	if _, err := plan.Prepare(); err != nil {
		return err
	}
	steps, err := env.migrate.Migrate(ctx, loaded.Config, action)
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
