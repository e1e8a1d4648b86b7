package scheduler_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// script executes one word after the other. The words are
//
//	500        wait 500 ms
//	a:hi       a types "hi"
//	a@10:hi    in thread 10
//	!hi        a program sends "hi"
//	#hi        a types "hi", which must not be merged
//	~hi        hi is for another lane
//	%400:hi    a types "hi", 400 bytes long
//	stop       the session is stopped; stopall, reset likewise
func script(t *testing.T, s *sched, words string) {
	t.Helper()
	for i, word := range strings.Fields(words) {
		if ms, err := strconv.Atoi(word); err == nil {
			pass(time.Duration(ms) * time.Millisecond)
			continue
		}
		switch word {
		case "stop", "stopall", "reset":
			stop(s, "s", word != "stop")
		default:
			it := spoken(word)
			it.ID = fmt.Sprint(i, word)
			submit(t, s, it)
		}
		synctest.Wait()
	}
}

// spoken parses one word of a script.
func spoken(word string) item {
	switch word[0] {
	case '!':
		return item{Payload: word[1:]}
	case '#':
		return item{Payload: word[1:], Sender: "a", Typed: true, NoMerge: true}
	case '~':
		return item{Payload: word[1:], Sender: "a", Typed: true, Lane: "cron"}
	case '%':
		size, text, _ := strings.Cut(word[1:], ":")
		n, _ := strconv.Atoi(size)
		return item{Payload: text, Sender: "a", Typed: true, Size: n}
	}
	who, text, _ := strings.Cut(word, ":")
	sender, thread, _ := strings.Cut(who, "@")
	return item{Payload: text, Sender: sender, Thread: thread, Typed: true}
}

func TestTheMessageThatFillsAWindowRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Queue: scheduler.Settings{BatchMessages: 3}, Run: instant(j)})
		for i := range 3 {
			it := spoken("a:x")
			it.ID = strconv.Itoa(i)
			if sub := submit(t, s, it); sub.Running || sub.Position != i {
				t.Errorf("message %d: running %v, position %d", i, sub.Running, sub.Position)
			}
		}
		synctest.Wait()
		if got := j.take(); len(got) != 1 {
			t.Errorf("started at once: %q", got)
		}
		drain(t, s)
	})
}

// dozen is twelve messages at once.
const dozen = "a:1 a:2 a:3 a:4 a:5 a:6 a:7 a:8 a:9 a:10 a:11 a:12"

func TestDebounceTable(t *testing.T) {
	t.Parallel()
	quick := scheduler.Settings{Debounce: 100 * time.Millisecond}
	off := scheduler.Settings{Debounce: -1}
	cases := []struct {
		words string
		set   scheduler.Settings
		want  string // starts, with their time in ms since the beginning; a turn takes no time unless the case sets one
	}{
		// One message.
		{"a:x", scheduler.Settings{}, "800:x"},
		{"!x", scheduler.Settings{}, "0:x"},
		{"#x", scheduler.Settings{}, "0:x"},
		{"~x", scheduler.Settings{}, "800:x"},
		{"a:x", off, "0:x"},
		{"a:x", quick, "100:x"},
		{"a:x", scheduler.Settings{BatchMessages: 1}, "0:x"},
		{"a:x", scheduler.Settings{Debounce: time.Second}, "1000:x"},
		{"%50000:x", scheduler.Settings{}, "0:x"},
		{"%49999:x", scheduler.Settings{}, "800:x"},
		{"%60000:x", scheduler.Settings{}, "0:x"},
		{"%60000:x", scheduler.Settings{BatchBytes: -1}, "800:x"},
		// Two messages of one person.
		{"a:x a:y", scheduler.Settings{}, "800:x+y"},
		{"a:x 799 a:y", scheduler.Settings{}, "1599:x+y"},
		{"a:x 800 a:y", scheduler.Settings{}, "800:x 1600:y"},
		{"a:x 801 a:y", scheduler.Settings{}, "800:x 1601:y"},
		{"a:x 99 a:y", quick, "199:x+y"},
		{"a:x 100 a:y", quick, "100:x 200:y"},
		{"a:x a:y", off, "0:x 0:y"},
		{"a:x a:y", scheduler.Settings{BatchMessages: 2}, "0:x+y"},
		{"a:x a:y a:z", scheduler.Settings{BatchMessages: 2}, "0:x+y 800:z"},
		{"a:x a:y a:z", scheduler.Settings{BatchMessages: -1}, "800:x+y+z"},
		// The maximum hold.
		{"a:1 700 a:2 700 a:3 700 a:4 700 a:5", scheduler.Settings{}, "2400:1+2+3+4 3600:5"},
		{"a:1 500 a:2 500 a:3 500 a:4 500 a:5 500 a:6", scheduler.Settings{}, "2400:1+2+3+4+5 3300:6"},
		{"a:1 700 a:2 700 a:3", scheduler.Settings{DebounceMax: 900 * time.Millisecond}, "900:1+2 2200:3"},
		{"a:1 700 a:2 700 a:3", scheduler.Settings{DebounceMax: 800 * time.Millisecond}, "800:1+2 2200:3"},
		{"a:1 90 a:2 90 a:3 90 a:4 90 a:5", quick, "300:1+2+3+4 460:5"},
		{"a:1 790 a:2 790 a:3 790 a:4 20 a:5", scheduler.Settings{}, "2400:1+2+3+4+5"},
		{"a:1 790 a:2 790 a:3 790 a:4 30 a:5", scheduler.Settings{}, "2400:1+2+3+4 3200:5"},
		// The batch is cut at its size.
		{dozen, scheduler.Settings{}, "0:1+2+3+4+5+6+7+8+9+10+11+12"},
		{dozen + " a:13", scheduler.Settings{}, "0:1+2+3+4+5+6+7+8+9+10+11+12 800:13"},
		{dozen + " 100 a:13", scheduler.Settings{}, "0:1+2+3+4+5+6+7+8+9+10+11+12 900:13"},
		{"%30000:x %20000:y", scheduler.Settings{}, "0:x+y"},
		{"%30000:x %20001:y", scheduler.Settings{}, "0:x 800:y"},
		{"%30000:x %19999:y", scheduler.Settings{}, "800:x+y"},
		{"%30000:x %60000:y", scheduler.Settings{}, "0:x 0:y"},
		{"%400:x %400:y %400:z", scheduler.Settings{BatchBytes: 1000}, "0:x+y 800:z"},
		{"%400:x %400:y %200:z", scheduler.Settings{BatchBytes: 1000}, "0:x+y+z"},
		// Different people, threads and lanes.
		{"a:x b:y", scheduler.Settings{}, "0:x 800:y"},
		{"a:x b:y a:z", scheduler.Settings{}, "0:x 0:y 800:z"},
		{"a:x a:y b:z", scheduler.Settings{}, "0:x+y 800:z"},
		{"a:x b:y b:z", scheduler.Settings{}, "0:x 800:y+z"},
		{"a:x 300 b:y", scheduler.Settings{}, "300:x 1100:y"},
		{"a@10:x 300 a@20:y", scheduler.Settings{}, "300:x 1100:y"},
		{"a@10:x a@10:y", scheduler.Settings{}, "800:x+y"},
		{"a@10:x a:y", scheduler.Settings{}, "0:x 800:y"},
		{"a:x ~y", scheduler.Settings{}, "0:x 800:y"},
		{"~x ~y", scheduler.Settings{}, "800:x+y"},
		// Messages without a window keep the order.
		{"a:x !y", scheduler.Settings{}, "0:x 0:y"},
		{"a:x #y", scheduler.Settings{}, "0:x 0:y"},
		{"a:x 200 #y 200 a:z", scheduler.Settings{}, "200:x 200:y 1200:z"},
		{"#x a:y", scheduler.Settings{}, "0:x 800:y"},
		{"!x a:y", scheduler.Settings{}, "0:x 800:y"},
		{"#x #y", scheduler.Settings{}, "0:x 0:y"},
		{"a:x a:y !z a:q a:r", scheduler.Settings{}, "0:x+y 0:z 800:q+r"},
		{"a:x 400 !y 400 a:z 400 !q", scheduler.Settings{}, "400:x 400:y 1200:z 1200:q"},
		// Stops end the messages of the window.
		{"a:x stop", scheduler.Settings{}, ""},
		{"a:x a:y stop", scheduler.Settings{}, ""},
		{"a:x stop a:y", scheduler.Settings{}, "800:y"},
		{"a:x 500 stop 100 a:y", scheduler.Settings{}, "1400:y"},
		{"a:x stopall a:y", scheduler.Settings{}, "800:y"},
		{"a:x 799 reset 1 a:y", scheduler.Settings{}, "1600:y"},
		{"a:x 799 reset 1 !y", scheduler.Settings{}, "800:y"},
		// Other modes.
		{"a:x a:y", scheduler.Settings{Mode: scheduler.ModeFollowup}, "800:x+y"},
		{"a:x a:y", scheduler.Settings{Mode: scheduler.ModeInterrupt}, "800:x+y"},
		{"a:x a:y", scheduler.Settings{Mode: scheduler.ModeCollect}, "800:x+y"},
		{"a:x a:y", scheduler.Settings{Mode: scheduler.ModeSteer}, "800:x+y"},
		{"a:x b:y", scheduler.Settings{Mode: scheduler.ModeInterrupt}, "800:y"},
		{"a:x !y", scheduler.Settings{Mode: scheduler.ModeInterrupt}, "0:y"},
	}
	if len(cases) < 60 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.words, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				s := newScheduler(t, config{Queue: c.set, Run: instant(j)})
				script(t, s, c.words)
				pass(time.Minute)
				want := strings.Fields(c.want)
				if got := j.take(); !slices.Equal(got, want) {
					t.Errorf("%+v\ngot  %q\nwant %q", c.set, got, want)
				}
				if st := s.Stats().Sessions; st.Debouncing != 0 || st.Tracked != 0 {
					t.Errorf("left: %+v", st)
				}
				drain(t, s)
			})
		})
	}
}

func TestFastTypingIsHeldNoLongerThanTheMaximum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, time.Second)})
		for i := range 60 { // twenty a second
			submit(t, s, item{ID: strconv.Itoa(i), Payload: "x", Sender: "a", Typed: true})
			pass(50 * time.Millisecond)
		}
		pass(time.Minute)
		dozen := strings.TrimSuffix(strings.Repeat("x+", 12), "+")
		var want []string
		for _, at := range []string{"550ms", "1.55s", "2.55s", "3.55s", "4.55s"} {
			want = append(want, at+" "+dozen)
		}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drain(t, s)
	})
}

func TestAQueuedMessagePaysTheWindowOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, 5*time.Second)})
		script(t, s, "a:x 1000 a:y a:z 1000 b:q")
		pass(time.Minute)
		want := []string{"800ms x", "5.8s y+z", "10.8s q"}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drain(t, s)
	})
}

func TestTenHoursOfChat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		s := newScheduler(t, config{Run: takes(j, 3*time.Second)})
		for minute := range 600 {
			for person := range 5 {
				key := "chat" + strconv.Itoa(person)
				for n := range 1 + (minute+person)%3 {
					submit(t, s, item{Session: key, ID: fmt.Sprint(minute, n), Sender: "a", Typed: true, Payload: key})
					pass(300 * time.Millisecond)
				}
			}
			pass(time.Minute)
		}
		if got := len(j.take()); got != 600*5 {
			t.Errorf("%d turns, want %d", got, 600*5)
		}
		drain(t, s)
		if o := s.outcomes(); o[answered] != 3000 || o[merged] != 3000 {
			t.Errorf("outcomes %v", o)
		}
	})
}
