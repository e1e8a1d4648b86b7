package cli

import (
	"context"
	"errors"
	"fmt"

	"laneway/internal/app"
)

type holdCmd struct {
	configFlags
	Reason string `help:"Why, for those who look at the status." placeholder:"TEXT"`
}

type releaseCmd struct {
	configFlags
	Yes bool `help:"Release without a question."`
}

// Help is the example of the command.
func (*holdCmd) Help() string {
	return `Holds every gateway on the configured store within a heartbeat (some seconds): nothing is sent, nothing is received from channels, and no job starts. Turns that
run end. Everything can be looked at, and administrators can chat. A backup is held from the beginning. laneway release ends it.

Example:

    laneway hold --reason "moving to another machine"`
}

// Help is the example of the command.
func (*releaseCmd) Help() string {
	return `Shows what begins with the release, and asks. Stop the original before you release a backup of it: else both send the same messages and run the same jobs.

Example:

    laneway release --data /var/backups/laneway-monday`
}

// Run holds the gateway.
func (c *holdCmd) Run(ctx context.Context, env *environment) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	if err := app.SetHold(ctx, loaded.Config, c.Reason, here()); err != nil {
		return fmt.Errorf("holding the gateway: %w", err)
	}
	_, err = fmt.Fprintln(env.stdout, "the gateway is held; release it with: laneway release")
	return err
}

// Run shows the waiting work, asks, and releases the gateway.
func (c *releaseCmd) Run(ctx context.Context, env *environment) error {
	if !c.Yes && env.terminal == nil {
		return usageError("laneway release asks a question, and this is no terminal; add --yes")
	}
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	waits, err := app.WhatIsHeld(ctx, loaded.Config)
	if err != nil {
		return fmt.Errorf("reading what is held: %w", err)
	}
	if waits.Hold == nil {
		_, err = fmt.Fprintln(env.stdout, "the gateway is not held")
		return err
	}
	if _, err := fmt.Fprintln(env.stdout, "with the release "+waits.Sentence()); err != nil {
		return err
	}
	if !c.Yes {
		agreed, err := env.confirm("Release the gateway?")
		if err != nil {
			return err
		}
		if !agreed {
			return errors.New("nothing was changed")
		}
	}
	if err := app.ReleaseHold(ctx, loaded.Config, here()); err != nil {
		return fmt.Errorf("releasing the gateway: %w", err)
	}
	_, err = fmt.Fprintln(env.stdout, "the gateway is released")
	return err
}
