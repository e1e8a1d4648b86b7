// Command gendoc writes the description of the wire protocol from the gateway's method table: docs/protocol.md for people,
// docs/protocol.json for programs, and wire.d.ts for the type checker of the dashboard.
//
// The table has the name, the scope, and the types of the parameters and the result of each method, with their limits; the defaults of
// limits and deadlines also come from the gateway. So none of these can differ from the behaviour of a gateway. The meaning of a member is
// the comment of its field in package wire. Everything else is prose: the text around the tables is in protocol.md.tmpl, the description of
// a method in notes.go, that of an event in events.go. A method or an event without a note, and a member without a comment, is an error.
//
// It reads the sources of package wire, writes the three files, and is run by `go generate`:
//
//	go run ./internal/gateway/gendoc -out docs -wire internal/wire -types internal/dashboard/types
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
	wire := flag.String("wire", "internal/wire", "directory of package wire, whose comments are the meanings of members")
	types := flag.String("types", "internal/dashboard/types", "directory to write wire.d.ts to")
	flag.Parse()
	if err := run(*out, *wire, *types); err != nil {
		fmt.Fprintln(os.Stderr, "gendoc:", err)
		os.Exit(1) //nolint:forbidigo // a generator is a separate program
	}
}

func run(dir, wire, types string) error {
	all, err := render(wire)
	if err != nil {
		return err
	}
	return errors.Join(write(filepath.Join(dir, "protocol.md"), all.page), write(filepath.Join(dir, "protocol.json"), all.machine), write(filepath.Join(types, "wire.d.ts"), all.types))
}

func write(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // documentation, readable for all
		return fmt.Errorf("writing the description: %w", err)
	}
	return nil
}

// backend has all optional methods of a gateway's backend, so that the table is complete. None of them is called.
type backend struct {
	gateway.Backend
	gateway.CronBackend
}

// rendered has the generated files: for people, for programs, for the type checker.
type rendered struct{ page, machine, types []byte }

// render generates the files from a gateway that is never served; the backend is not called. wire is the directory of package wire.
func render(wire string) (out rendered, err error) {
	cred := auth.Credential{Name: "gateway", Digest: sha256.Sum256([]byte("documentation")), Scopes: []string{chat.ScopeRead}}
	srv, err := gateway.New(gateway.Config{Credentials: []auth.Credential{cred}}, backend{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return out, fmt.Errorf("making the table of methods: %w", err)
	}
	texts, err := readMeanings(wire)
	if err != nil {
		return out, err
	}
	all, err := describe(srv, texts)
	if err != nil {
		return out, err
	}
	if out.page, err = markdown(all); err != nil {
		return out, err
	}
	out.types = typesOf(all)
	out.machine, err = jsonOf(all)
	return out, errors.Join(err, texts.err())
}
