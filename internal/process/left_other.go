//go:build !linux

package process

import (
	"context"
	"errors"
	"time"
)

// Started returns "": it is unknown on this system.
func Started(int) string { return "" }

// EndLeft fails: whether the process runs is unknown on this system.
func EndLeft(context.Context, int, string, time.Duration) error {
	return errors.New("ending a process that was left: it is not known on this system")
}
