// Package diskspace checks that the disks to which this process writes have enough free space.
//
// The gateway checks a [Floor] before it accepts a new message. Below the floor new messages are
// refused, so that accepted messages have the space that their turns and answers need. It starts no
// goroutine: a check reads the disks if the last reading is a second old, and concurrent checks
// return the last result. A disk whose free space cannot be read counts as having enough: the store
// reports real faults.
package diskspace

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// ErrLow matches the error of a disk with less free space than the floor.
var ErrLow = errors.New("the disk has too little free space")

// ErrUnsupported is returned by [Free] on systems where it cannot read the free space.
var ErrUnsupported = errors.New("the free space of a disk cannot be read on this system")

// every is the age at which a reading is renewed.
const every = time.Second

// Config of a [Floor].
type Config struct {
	// Dirs are existing directories on the disks to check.
	Dirs []string
	// Bytes is how much must be free on each disk; 0 or less disables the floor.
	Bytes int64
	// Free reads the free space of the disk of a directory in bytes; nil means [Free].
	Free func(dir string) (uint64, error)
	// Logger receives a line with the directory when the result changes; nil discards.
	Logger *slog.Logger
}

// Floor is a lower bound on the free space of some disks. It is safe for concurrent use.
type Floor struct {
	cfg     Config
	reading atomic.Bool
	last    atomic.Pointer[reading]
}

type reading struct {
	at  time.Time
	err error // nil or ErrLow
}

// New makes a floor.
func New(cfg Config) *Floor {
	if cfg.Free == nil {
		cfg.Free = Free
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Floor{cfg: cfg}
}

// Check returns nil while every disk has enough free space, otherwise an error that matches
// [ErrLow] and names no path.
func (f *Floor) Check() error {
	if f == nil || f.cfg.Bytes <= 0 {
		return nil
	}
	last := f.last.Load()
	if last != nil && time.Since(last.at) < every {
		return last.err
	}
	if !f.reading.CompareAndSwap(false, true) {
		if last == nil {
			return nil // the first reading is in progress
		}
		return last.err
	}
	defer f.reading.Store(false)
	now := &reading{at: time.Now(), err: f.read()}
	f.last.Store(now)
	if was := last != nil && last.err != nil; was && now.err == nil {
		f.cfg.Logger.Info("the disk has enough free space again; new messages are accepted")
	}
	return now.err
}

// read reads the free space of every disk.
func (f *Floor) read() error {
	for _, dir := range f.cfg.Dirs {
		free, err := f.cfg.Free(dir)
		if err != nil {
			f.cfg.Logger.Debug("the free space of a disk was not read", "dir", dir, "err", err)
			continue
		}
		if free < uint64(f.cfg.Bytes) { //nolint:gosec // above 0
			if last := f.last.Load(); last == nil || last.err == nil {
				f.cfg.Logger.Warn("the disk has too little free space; new messages are refused until there is more", "dir", dir, "free", free, "floor", f.cfg.Bytes)
			}
			return fmt.Errorf("%w: %d bytes are free, the floor is %d", ErrLow, free, f.cfg.Bytes)
		}
	}
	return nil
}
