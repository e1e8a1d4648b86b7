package teste2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"laneway/internal/testtelegram"
)

// leak searches all output of gateways, commands and tests for the token of a bot, until the last test has ended.
var leak testtelegram.Leak

// Everything returns every row of every table as text.
func (o *Oracle) Everything(tb testing.TB, database string) map[string][]string {
	tb.Helper()
	list := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
	if database != "" {
		list = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
	}
	names := o.Rows(list)
	if len(names) < 10 {
		tb.Fatalf("the database has the tables %q; that is not all", names)
	}
	all := map[string][]string{}
	for _, name := range names {
		all[name] = o.Rows("SELECT * FROM " + name)
	}
	return all
}

// Search is a search for secrets.
type Search struct {
	// Database is its URL; "" = the SQLite file of the installation.
	Database string
	// Secrets by name.
	Secrets map[string]string
	// Heard is what a test has received from the gateway.
	Heard []string
	// Own are the names of files that contain a secret by design.
	Own []string
}

// In searches everything that a gateway has left: its output, its tables, its files, and Heard. It returns one line for each match, without
// the secret itself.
func (s Search) In(tb testing.TB, g *Gateway) []string {
	tb.Helper()
	var found []string
	look := func(place, text string) {
		for name, secret := range s.Secrets {
			if strings.Contains(text, secret) {
				found = append(found, name+" is in "+place)
			}
		}
	}
	look("what it printed", g.Output())
	for table, rows := range OpenOracle(tb, g, s.Database).Everything(tb, s.Database) {
		look("the table "+table, strings.Join(rows, "\n"))
	}
	for _, text := range s.Heard {
		look("an answer", text)
	}
	err := filepath.WalkDir(filepath.Join(g.Dir, "data"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(s.Own, d.Name()) {
			return err
		}
		raw, err := os.ReadFile(path)
		look("the file "+d.Name(), string(raw))
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}
