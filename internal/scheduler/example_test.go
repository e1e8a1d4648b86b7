package scheduler_test

import (
	"context"
	"fmt"

	"laneway/internal/scheduler"
)

// A session that is woken gets a slot. The turn asks the store what to do with it.
func Example() {
	ctx := context.Background() // the work context of the process
	store := []string{"hello", "how are you?"}
	next := func() *scheduler.Wake {
		if len(store) == 0 {
			return nil
		}
		return &scheduler.Wake{Session: "chat:1", Settings: scheduler.DefaultSettings()}
	}
	ended := make(chan struct{}, 2)
	s, err := scheduler.New(ctx, scheduler.Config{
		Run: func(_ context.Context, t *scheduler.Turn) error {
			text := store[0]
			store = store[1:]
			t.Began(scheduler.Batch{RunID: "re " + text, Left: next()})
			fmt.Println(t.RunID())
			ended <- struct{}{}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Wake(*next())
	<-ended
	<-ended
	fmt.Println(s.Drain(ctx))
	// Output:
	// re hello
	// re how are you?
	// <nil>
}

// A stop cancels the context of the turn with a cause that names the requester.
func ExampleScheduler_Stop() {
	ctx := context.Background()
	started := make(chan struct{})
	s, err := scheduler.New(ctx, scheduler.Config{
		Run: func(ctx context.Context, t *scheduler.Turn) error {
			t.Began(scheduler.Batch{RunID: "m1"})
			close(started)
			<-ctx.Done()
			fmt.Println("the turn ends:", context.Cause(ctx))
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Wake(scheduler.Wake{Session: "chat:1", ID: "m1", Settings: scheduler.DefaultSettings()})
	<-started
	runs := s.Stop("chat:1", "ann")
	fmt.Println(s.Drain(ctx), runs, s.Stop("chat:1", "ann"))
	// Output:
	// the turn ends: stopped by ann
	// <nil> [m1] []
}

// A turn that waits for other turns releases its slot meanwhile, so one slot is enough for parent
// and child.
func ExampleTurn_Yield() {
	ctx := context.Background()
	wake := func(session string) scheduler.Wake {
		return scheduler.Wake{Session: session, Settings: scheduler.DefaultSettings()}
	}
	child, over := make(chan struct{}), make(chan struct{})
	var s *scheduler.Scheduler
	s, err := scheduler.New(ctx, scheduler.Config{
		Lanes: lanes(map[string]int{scheduler.LaneMain: 1}),
		Run: func(ctx context.Context, t *scheduler.Turn) error {
			t.Began(scheduler.Batch{RunID: t.Session()})
			if t.Session() == "child" {
				fmt.Println("child works")
				close(child)
				return nil
			}
			s.Wake(wake("child"))
			err := t.Yield(ctx, func(context.Context) error { <-child; return nil })
			fmt.Println("parent continues")
			close(over)
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	s.Wake(wake("parent"))
	<-over
	fmt.Println(s.Drain(ctx))
	// Output:
	// child works
	// parent continues
	// <nil>
}

// Settings are layered: the more specific ones override the general ones.
func ExampleSettings_Over() {
	global := scheduler.Settings{BatchMessages: 20}.Over(scheduler.DefaultSettings())
	group := scheduler.Settings{MaxConcurrent: 3, Mode: scheduler.ModeCollect}.Over(global)
	fmt.Println(group.Mode, group.BatchMessages, group.Debounce, group.MaxConcurrent)
	// Output: collect 20 800ms 3
}
