package schedule

import (
	"fmt"
	"sync"
	"testing"
)

func TestCompilerRemembersAndStaysBounded(t *testing.T) {
	t.Parallel()
	c := NewCompiler(8)
	first, err := c.Compile(cronSpec("0 9 * * *", "Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := c.Compile(cronSpec("0 9 * * *", "Europe/Berlin"))
	if first != again {
		t.Error("the same spec was compiled twice")
	}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				spec := cronSpec(fmt.Sprintf("%d %d * * *", i%60, (i+g)%24), "Asia/Tokyo")
				s, err := c.Compile(spec)
				if err != nil || s.Spec() != spec {
					t.Errorf("Compile(%+v) = %+v, %v", spec, s.Spec(), err)
				}
				if _, ok := s.Next(noon); !ok {
					t.Errorf("%+v never fires", spec)
				}
			}
		})
	}
	group.Wait()
	if kept := len(c.newer) + len(c.older); kept > 16 {
		t.Errorf("%d schedules are kept, want at most 16", kept)
	}
	_, err = c.Compile(cronSpec("0 9 * * *", "Mars/Base"))
	refused(t, "zone", err, "schedule.tz", InvalidZone, "Mars/Base")
	if s, err := c.Compile(Spec{Kind: KindEvery, EveryMs: 1000}); err != nil || s.Kind() != KindEvery {
		t.Errorf("every: %+v, %v", s, err)
	}
}
