package ownership_test

import (
	"context"
	"testing"
	"testing/synctest"

	"laneway/internal/ownership"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// TestATryThatTakesLongerThanALeaseIsMadeAgain covers a try that may have been committed: giving up
// would leave the rows unchanged and end the run as failed. On a machine that was suspended this
// happens to each operation in progress.
func TestATryThatTakesLongerThanALeaseIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, repeat := range map[string]func(*ownership.Node, context.Context, func(context.Context) error) error{
		"Final": func(n *ownership.Node, ctx context.Context, op func(context.Context) error) error {
			return n.Final(ctx, "a write", op)
		},
		"WhileAlive": (*ownership.Node).WhileAlive,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := start(t, ownership.Config{}, sqlitetest.Open(t, sqlite.Config{}))
				defer p.end()
				tries := 0
				err := repeat(p.Node, t.Context(), func(ctx context.Context) error {
					if tries++; tries > 1 {
						return nil
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
				if err != nil || tries != 2 {
					t.Errorf("%d tries ended with %v, want the second one to succeed", tries, err)
				}
			})
		})
	}
}
