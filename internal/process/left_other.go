//go:build !linux

package process

import (
	"context"
	"errors"
	"time"
)

// Started is "": it is not known here.
func Started(int) string { return "" }

// EndLeft fails: whether the process lives is not known here.
func EndLeft(context.Context, int, string, time.Duration) error {
	return errors.New("ending a process that was left: it is not known on this system")
}
