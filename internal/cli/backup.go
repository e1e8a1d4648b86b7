package cli

import (
	"context"
	"fmt"

	"laneway/internal/app"
)

type backupCmd struct {
	configFlags
	Dir  string `arg:"" help:"New directory for the backup." type:"path"`
	JSON bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*backupCmd) Help() string {
	return `Copies the SQLite database, the files of conversations and the token of the data directory, while the gateway runs. The new directory can be
served: laneway serve --data DIR. It is as secret as the data directory. PostgreSQL has tools of its own (pg_dump).

Example:

    laneway backup /var/backups/laneway-monday`
}

// backupReport is what the command prints as JSON.
type backupReport struct {
	Dir           string `json:"dir"`
	DatabaseBytes int64  `json:"databaseBytes"`
	Files         int    `json:"files"`
	FileBytes     int64  `json:"fileBytes"`
}

// Run makes a backup.
func (c *backupCmd) Run(ctx context.Context, env *environment) error {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return err
	}
	r, err := app.Backup(ctx, loaded.Config, c.Dir)
	if err != nil {
		return fmt.Errorf("making the backup: %w", err)
	}
	if c.JSON {
		return printJSON(env.stdout, backupReport{Dir: r.Dir, DatabaseBytes: r.DatabaseBytes, Files: r.Files, FileBytes: r.FileBytes})
	}
	_, err = fmt.Fprintf(env.stdout, "%s: the database (%s) and %s (%s)\n", r.Dir, size(r.DatabaseBytes), count(r.Files, "file"), size(r.FileBytes))
	return err
}

// size formats a number of bytes with the unit that a person would use.
func size(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/step, 0
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for value >= step && unit < len(units)-1 {
		value, unit = value/step, unit+1
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
