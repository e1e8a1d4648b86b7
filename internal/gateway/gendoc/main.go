// Command gendoc writes the description of the wire protocol from the gateway's method table: docs/protocol.md for people and
// docs/protocol.json for programs.
//
// The table says what each method is called, which scope it needs, and which params it takes within which bounds; the defaults of
// limits and deadlines come from the gateway as well, so none of these can differ from what a gateway does. What cannot be
// taken from the code is prose: the text around the tables is in protocol.md.tmpl, what a method does and answers is in notes.go.
// A method without a note, a note without words, or an event that the text does not name is an error, not a gap in the page.
//
// It reads and writes nothing but the two files, and is run by `go generate`:
//
//	go run ./internal/gateway/gendoc -out docs
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

func main() {
	out := flag.String("out", "docs", "directory to write protocol.md and protocol.json to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1) //nolint:forbidigo // a generator is a program of its own
	}
}

func run(dir string) error {
	page, machine, err := render()
	if err != nil {
		return err
	}
	return errors.Join(write(filepath.Join(dir, "protocol.md"), page), write(filepath.Join(dir, "protocol.json"), machine))
}

func write(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // documentation, for everybody
		return fmt.Errorf("writing the description: %w", err)
	}
	return nil
}

// shape has the methods that a gateway's backend may have, so that the table is whole. None of them is called.
type shape struct {
	gateway.Backend
	gateway.CronBackend
}

// render makes both files from a gateway that is never served; nothing of a backend is asked for the table.
func render() (page, machine []byte, err error) {
	cred := auth.Credential{Name: "gateway", Digest: sha256.Sum256([]byte("documentation")), Scopes: []string{chat.ScopeRead}}
	srv, err := gateway.New(gateway.Config{Credentials: []auth.Credential{cred}}, shape{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, fmt.Errorf("making the table of methods: %w", err)
	}
	all, err := describe(srv)
	if err != nil {
		return nil, nil, err
	}
	if page, err = markdown(all); err != nil {
		return nil, nil, err
	}
	machine, err = jsonOf(all)
	return page, machine, err
}
