package scheduler_test

import (
	"context"
	"errors"
	"fmt"

	"laneway/internal/scheduler"
)

// A scheduler runs the messages of a session one after the other. A ticket is the promise of how a
// message ends.
func Example() {
	ctx := context.Background() // the work context of the process
	s, err := scheduler.New(ctx, scheduler.Config[string]{
		Run: func(_ context.Context, t *scheduler.Turn[string]) error {
			for _, it := range t.Items() {
				fmt.Println(t.RunID(), "answers", it.Payload)
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var last *scheduler.Ticket
	for _, text := range []string{"hello", "how are you?"} {
		sub, err := s.Submit(scheduler.Item[string]{Session: "chat:1", ID: "re " + text, Payload: text})
		if err != nil {
			fmt.Println(err)
			return
		}
		last = sub.Ticket
	}
	outcome, err := last.Wait(ctx)
	fmt.Println(outcome, err, s.Drain(ctx))
	// Output:
	// re hello answers hello
	// re how are you? answers how are you?
	// answered <nil> <nil>
}

// A stop cancels the context of the turn with a cause that names the requester.
func ExampleScheduler_Stop() {
	ctx := context.Background()
	started := make(chan struct{})
	s, err := scheduler.New(ctx, scheduler.Config[string]{
		Run: func(ctx context.Context, _ *scheduler.Turn[string]) error {
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
	sub, err := s.Submit(scheduler.Item[string]{Session: "chat:1", ID: "m1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-started
	stopped := s.Stop("chat:1", "ann")
	outcome, err := sub.Ticket.Wait(ctx)
	fmt.Println(stopped.Running[0].RunID(), outcome, errors.Is(err, scheduler.ErrStopped))
	fmt.Println("nothing left:", s.Stop("chat:1", "ann").Nothing(), s.Drain(ctx))
	// Output:
	// the turn ends: stopped by ann
	// m1 stopped true
	// nothing left: true <nil>
}

// A turn that waits for other turns releases its slot meanwhile, so one slot is enough for parent
// and child.
func ExampleTurn_Yield() {
	ctx := context.Background()
	var s *scheduler.Scheduler[string]
	ask := func(ctx context.Context, t *scheduler.Turn[string]) error {
		sub, err := s.Submit(scheduler.Item[string]{Session: t.Session() + "/child", ID: "child", Payload: "count"})
		if err != nil {
			return err
		}
		return t.Yield(ctx, func(ctx context.Context) error {
			_, err := sub.Ticket.Wait(ctx)
			return err
		})
	}
	s, err := scheduler.New(ctx, scheduler.Config[string]{
		Lanes: lanes(map[string]int{scheduler.LaneMain: 1}),
		Run: func(ctx context.Context, t *scheduler.Turn[string]) error {
			if t.RunID() == "parent" {
				defer fmt.Println("parent continues")
				return ask(ctx, t)
			}
			fmt.Println("child works")
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sub, err := s.Submit(scheduler.Item[string]{Session: "chat:1", ID: "parent"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sub.Ticket.Wait(ctx))
	fmt.Println(s.Drain(ctx))
	// Output:
	// child works
	// parent continues
	// answered <nil>
	// <nil>
}

// Settings are layered: the more specific ones override the general ones.
func ExampleSettings_Over() {
	global := scheduler.Settings{BatchMessages: 20}.Over(scheduler.DefaultSettings())
	group := scheduler.Settings{MaxConcurrent: 3, Mode: scheduler.ModeCollect}.Over(global)
	fmt.Println(group.Mode, group.BatchMessages, group.Debounce, group.MaxConcurrent)
	// Output: collect 20 800ms 3
}
