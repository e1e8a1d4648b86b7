package testpg

import (
	"bytes"
	"context"
	_ "embed" // the compose file
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// URLVariable is the environment variable through which a launcher passes the address of the server
// to test binaries.
const URLVariable = "TEST_DATABASE_URL"

// ErrNoServer is returned when no Postgres can be found or started. Its message states how to get
// one.
var ErrNoServer = errors.New("no Postgres for the tests: set " + URLVariable +
	", or install the server programs (Debian: apt-get install postgresql; or name their directory in PG_BIN), or start Docker")

// Config is the input of [Provide]; a command fills it from its environment.
type Config struct {
	// URL of a server that runs already; "" if none.
	URL string
	// PGBin is a directory with server programs; "" means the usual places.
	PGBin string
	// NoFsync is passed to a private cluster.
	NoFsync bool
	// Dir is the parent of a private cluster's directory; "" means the directory for temporary
	// files.
	Dir string
	// Stable makes the address of a private cluster in Dir depend only on Dir and the server's
	// version. Dir belongs to the caller.
	Stable bool
}

// Provided is a server for tests.
type Provided struct {
	// URL of a database in which other databases can be created.
	URL string
	// How describes in a few words where the server came from.
	How  string
	stop func(context.Context) error
}

// Stop ends what [Provide] has started, and only that.
func (p *Provided) Stop(ctx context.Context) error { return p.stop(ctx) }

// Provide finds or starts a server. It blocks until the server answers; the error wraps
// [ErrNoServer] if none can be found or started.
func Provide(ctx context.Context, cfg Config) (*Provided, error) {
	if cfg.URL != "" {
		return &Provided{URL: cfg.URL, How: URLVariable, stop: func(context.Context) error { return nil }}, nil
	}
	bin, noBinaries := findBinaries(cfg.PGBin)
	if noBinaries == nil {
		return private(ctx, cfg, bin)
	}
	c, url, err := startContainer(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w (%w; %w)", ErrNoServer, noBinaries, err)
	}
	return &Provided{URL: url, How: "docker compose", stop: c.stop}, nil
}

// private starts a cluster with the programs in bin.
func private(ctx context.Context, cfg Config, bin string) (*Provided, error) {
	server := ServerConfig{BinDir: bin, NoFsync: cfg.NoFsync, Dir: cfg.Dir}
	if cfg.Stable {
		name, err := nameOf(ctx, bin)
		if err != nil {
			return nil, err
		}
		server.Name = name
	}
	s, err := StartServer(ctx, server)
	if err != nil {
		return nil, err
	}
	return &Provided{URL: s.URL(), How: "private cluster by " + bin, stop: func(context.Context) error { return s.Stop() }}, nil
}

// nameOf returns a directory name for a cluster from the version of the server in bin, for example
// "pg-5f0c1d2e".
func nameOf(ctx context.Context, bin string) (string, error) {
	version, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output() // found by findBinaries
	if err != nil {
		return "", fmt.Errorf("asking Postgres for its version: %w", err)
	}
	return fmt.Sprintf("pg-%08x", crc32.ChecksumIEEE(version)), nil
}

//go:embed compose.yaml
var composeFile []byte

// container is a server in a container of a separate project.
type container struct{ project string }

func startContainer(ctx context.Context) (*container, string, error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return nil, "", fmt.Errorf("docker compose: %w", err)
	}
	c := &container{project: "laneway-testpg-" + strconv.Itoa(os.Getpid())}
	if _, err := c.compose(ctx, "up", "--wait", "--quiet-pull"); err != nil {
		return nil, "", errors.Join(err, c.stop(ctx))
	}
	addr, err := c.compose(ctx, "port", "postgres", "5432")
	if err != nil {
		return nil, "", errors.Join(err, c.stop(ctx))
	}
	return c, "postgres://laneway:laneway@" + strings.TrimSpace(addr) + "/postgres?sslmode=disable", nil
}

func (c *container) stop(ctx context.Context) error {
	_, err := c.compose(context.WithoutCancel(ctx), "down", "--volumes", "--timeout", "5")
	return err
}

func (c *container) compose(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"compose", "-p", c.project, "-f", "-"}, args...)...) // fixed words
	cmd.Stdin = bytes.NewReader(composeFile)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker compose %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
