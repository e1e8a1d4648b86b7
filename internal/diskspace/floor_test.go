package diskspace_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/diskspace"
)

func TestTheFloorFollowsTheDiskWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var free, asked atomic.Int64
		free.Store(1000)
		f := diskspace.New(diskspace.Config{Dirs: []string{"a", "b"}, Bytes: 500, Free: func(dir string) (uint64, error) {
			asked.Add(1)
			if dir == "a" {
				return 0, errors.New("not there")
			}
			return uint64(free.Load()), nil
		}})
		check := func(what string, low bool) {
			t.Helper()
			if err := f.Check(); errors.Is(err, diskspace.ErrLow) != low {
				t.Errorf("%s: %v", what, err)
			}
		}
		check("at first", false)
		free.Store(499)
		for range 1000 {
			check("within the second", false)
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("the disks were read %d times in a second, want each once", n)
		}
		time.Sleep(time.Second)
		check("below the floor", true)
		free.Store(500)
		time.Sleep(time.Second)
		check("at the floor", false)
	})
}

func TestNoFloorReadsNothing(t *testing.T) {
	t.Parallel()
	var none *diskspace.Floor
	off := diskspace.New(diskspace.Config{Dirs: []string{"a"}, Free: func(string) (uint64, error) { panic("read") }})
	if err := errors.Join(none.Check(), off.Check()); err != nil {
		t.Error(err)
	}
}

func TestTheDiskOfATestHasSpace(t *testing.T) {
	t.Parallel()
	free, err := diskspace.Free(t.TempDir())
	if err != nil || free == 0 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
}
