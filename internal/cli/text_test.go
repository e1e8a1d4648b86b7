package cli

import (
	"testing"

	"laneway/internal/wire"
)

func TestCountsHaveTheRightPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 jobs", 1: "1 job", 2: "2 jobs"} {
		if got := count(n, "job"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, want := cronLine(testNow(), wire.StatusResult{}), "0 jobs, 0 running, backlog 0, switched off"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
