package testpg

import (
	"bytes"
	"context"
	_ "embed" // the compose file
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

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
	cmd := exec.CommandContext(ctx, "docker", append([]string{"compose", "-p", c.project, "-f", "-"}, args...)...) //nolint:gosec // fixed words
	cmd.Stdin = bytes.NewReader(composeFile)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker compose %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
