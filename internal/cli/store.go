package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"laneway/internal/app"
	"laneway/internal/config"
)

type storeCmd struct {
	Copy storeCopy `cmd:"" help:"Copy everything from one database to another."`
}

type storeCopy struct {
	configFlags
	From string `help:"Database to copy from: sqlite:PATH or postgres://…; default the configured one." placeholder:"URL"`
	To   string `help:"Empty database to copy to; default the configured one." placeholder:"URL"`
	JSON bool   `help:"Print JSON."`
}

// storeCopyReport is the JSON output of the command.
type storeCopyReport struct {
	From    string            `json:"from"`
	To      string            `json:"to"`
	Altered int64             `json:"alteredTexts"`
	Tables  []copyTableReport `json:"tables"`
}

type copyTableReport struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	Checksum string `json:"checksum"`
}

// Run copies a store.
func (c *storeCopy) Run(ctx context.Context, env *environment) error {
	from, to, err := c.stores(env)
	if err != nil {
		return err
	}
	progress := copyProgress{env: env}
	result, err := app.CopyStore(ctx, from, to, app.CopyOptions{Report: progress.step})
	progress.end()
	if err != nil {
		if _, ok := errors.AsType[*app.LiveNodesError](err); ok {
			return fmt.Errorf("%w; nothing was changed", err)
		}
		return fmt.Errorf("copying the store: %w", err)
	}
	report := storeCopyReport{From: from.String(), To: to.String(), Altered: result.Altered}
	for _, t := range result.Tables {
		report.Tables = append(report.Tables, copyTableReport{Name: t.Name, Rows: t.Sum.Rows, Checksum: t.Sum.String()})
	}
	if c.JSON {
		return printJSON(env.stdout, report)
	}
	return report.print(env)
}

// stores returns the two addresses.
func (c *storeCopy) stores(env *environment) (from, to config.DatabaseURL, err error) {
	if c.From == "" && c.To == "" {
		return from, to, usageError("--from or --to must be given; see laneway store copy --help")
	}
	if c.From != "" && c.To != "" {
		from, err = storeAddress("--from", c.From)
		if err == nil {
			to, err = storeAddress("--to", c.To)
		}
	} else {
		from, to, err = c.besideConfigured(env)
	}
	if err == nil && from == to {
		err = usageError("--from and --to are the same store")
	}
	return from, to, err
}

// besideConfigured returns the store of one flag, and the configured one for the omitted flag.
func (c *storeCopy) besideConfigured(env *environment) (from, to config.DatabaseURL, err error) {
	loaded, err := c.loadBeside(env)
	if err != nil {
		return from, to, err
	}
	configured, err := app.Database(loaded.Config)
	if err != nil {
		return from, to, err
	}
	if c.From == "" {
		to, err = storeAddress("--to", c.To)
		return configured, to, err
	}
	from, err = storeAddress("--from", c.From)
	return from, configured, err
}

func storeAddress(flag, text string) (config.DatabaseURL, error) {
	var at config.DatabaseURL
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return at, usageError(flag + " is empty")
	}
	if path, ok := at.SQLitePath(); ok && path != "" || at.IsPostgres() {
		return at, nil
	}
	return at, usageError(flag + " must look like sqlite:PATH or postgres://user@host/name")
}

func (r storeCopyReport) print(env *environment) error {
	rows := [][]string{{"TABLE", "ROWS", "CHECKSUM"}}
	for _, t := range r.Tables {
		rows = append(rows, []string{t.Name, strconv.FormatInt(t.Rows, 10), t.Checksum[:16]})
	}
	if err := env.table(rows); err != nil {
		return err
	}
	if r.Altered > 0 {
		env.note(fmt.Sprintf("warning: %s had characters that PostgreSQL cannot store; they were left out", count(int(r.Altered), "text")))
	}
	return env.print("%s is equal to %s\n", r.To, r.From)
}

// copyProgress shows the progress of a copy: one line that changes on a terminal, otherwise a line
// for each table and every ten seconds.
type copyProgress struct {
	env     *environment
	last    app.CopyStep
	shown   time.Time
	pending bool // the line of the terminal has not been ended
}

const (
	progressTerminal = 100 * time.Millisecond
	progressPlain    = 10 * time.Second
)

func (p *copyProgress) step(s app.CopyStep) {
	if p.env.quiet {
		return
	}
	now, every := p.env.now(), progressPlain
	if p.env.toTerminal {
		every = progressTerminal
	}
	changed := s.Table != p.last.Table || s.Phase != p.last.Phase
	p.last = s
	if !changed && now.Sub(p.shown) < every && s.Rows < s.Total {
		return
	}
	p.shown = now
	line := fmt.Sprintf("%s %s: %d of %d rows", s.Phase, s.Table, s.Rows, s.Total)
	if s.Resumed {
		line += " (resumed)"
	}
	if p.env.toTerminal {
		_, _ = fmt.Fprintf(p.env.stderr, "\r\x1b[K%s", line)
		p.pending = true
		return
	}
	p.env.complain(line)
}

func (p *copyProgress) end() {
	if p.pending {
		_, _ = fmt.Fprint(p.env.stderr, "\r\x1b[K")
	}
}

type backupCmd struct {
	configFlags
	Dir  string `arg:"" help:"New directory for the backup." type:"path"`
	JSON bool   `help:"Print JSON."`
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
	return env.print("%s: the database (%s) and %s (%s)\n", r.Dir, size(r.DatabaseBytes), count(r.Files, "file"), size(r.FileBytes))
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
