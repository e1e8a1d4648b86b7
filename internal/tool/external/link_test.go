package external

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Without the cost of a line, a program that writes notifications of 90 bytes keeps a processor
// busy.
func TestShortMessagesAreReadAtABoundedNumberPerSecond(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		line             int // bytes, including its end
		pieces, perPiece int
		atLeast, atMost  time.Duration
	}{
		"one message of the greatest length": {maxMessage / 128, 128, 1, 0, 100 * time.Millisecond},
		"long messages":                      {32 << 10, 14 * 32, 1, 10 * time.Second, 11 * time.Second},
		"notifications":                      {90, 300, 300, 25 * time.Second, 26 * time.Second}, // 90,000 of 346 bytes, less the first 4 MiB
		"empty lines":                        {1, 3, 32 << 10, 8 * time.Second, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, began := newAllowance(), time.Now()
				piece := bytes.Repeat(append(bytes.Repeat([]byte{'x'}, tt.line-1), '\n'), tt.perPiece)
				for range tt.pieces {
					if err := a.take(t.Context(), piece); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took < tt.atLeast || took > tt.atMost {
					t.Errorf("took %s, want %s to %s", took, tt.atLeast, tt.atMost)
				}
			})
		})
	}
}

func TestAWaitForTheAllowanceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := newAllowance()
		piece := bytes.Repeat([]byte{'\n'}, 32<<10)
		var err error
		for range 3 {
			err = a.take(ctx, piece)
		}
		if err == nil {
			t.Error("three pieces were taken in a second")
		}
	})
}
