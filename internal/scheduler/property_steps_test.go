package scheduler_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/scheduler"
)

// steps are the actions of the machine.
func (w *world) steps() map[string]func(*rapid.T) {
	step := func(f func()) func(*rapid.T) { return func(*rapid.T) { f() } }
	return map[string]func(*rapid.T){
		"submit":  step(w.submit),
		"submit2": step(w.submit),
		"submit3": step(w.submit),
		"return":  step(func() { w.order("return") }),
		"return2": step(func() { w.order("return") }),
		"fail":    step(func() { w.order("fail") }),
		"panic":   step(func() { w.order("panic") }),
		"yield":   step(func() { w.order("yield") }),
		"yield2":  step(func() { w.order("yield") }),
		"return3": step(func() { w.order("return") }),
		"pass":    step(func() { pass(time.Duration(rapid.IntRange(1, 3000).Draw(w.rt, "ms")) * time.Millisecond) }),
		"stop": step(func() {
			w.endedAre(w.s.Stop(w.session(), "ann").Ended, scheduler.OutcomeStopped)
		}),
		"stop_run": step(func() {
			key := w.session()
			seq := rapid.Int64Range(1, w.next[key]+1).Draw(w.rt, "seq")
			w.endedAre(w.s.StopRun(key, id(key, seq), "ann").Ended, scheduler.OutcomeStopped)
		}),
		"stop_all": step(func() {
			key := w.session()
			st := w.s.StopAll(key, "ann", 0)
			w.endedAre(st.Ended, scheduler.OutcomeStopped)
			if info, ok := w.s.Session(key); ok && info.Waiting != 0 {
				w.rt.Fatalf("after StopAll: %+v", info)
			}
			if st.Cutoff > w.next[key] {
				w.rt.Fatalf("cutoff %d, last %d", st.Cutoff, w.next[key])
			}
		}),
		"drop": step(func() {
			key := w.session()
			seq := rapid.Int64Range(1, w.next[key]+1).Draw(w.rt, "seq")
			if e, ok := w.s.Drop(key, seq); ok {
				w.endedAre([]scheduler.Ended[string]{e}, scheduler.OutcomeDropped)
			}
		}),
		"cut":    step(func() { w.s.Cut(w.session()) }),
		"reset":  step(func() { w.endedAre(w.s.Reset(w.session()), scheduler.OutcomeCleared) }),
		"resets": step(func() { w.endedAre(w.s.ResetAll(), scheduler.OutcomeCleared) }),
		"resize": step(func() {
			lane := rapid.SampledFrom([]string{"main", "side"}).Draw(w.rt, "lane")
			if err := w.s.Resize(scheduler.Lane{Name: lane, Limit: rapid.IntRange(1, 4).Draw(w.rt, "n")}); err != nil {
				w.rt.Fatalf("resize: %v", err)
			}
		}),
		"settle": step(func() {
			if t, _ := w.pick(); t != nil {
				if err := t.Settle(); (err == nil) != (t.Cause() == nil) {
					w.rt.Fatalf("Settle = %v, cause %v", err, t.Cause())
				}
			}
		}),
		"input": step(func() {
			if t, _ := w.pick(); t != nil {
				t.AcceptInput()
				w.mu.Lock()
				for _, it := range t.TakeInput() {
					w.begun[t.Session()] = append(w.begun[t.Session()], it.Seq)
				}
				w.mu.Unlock()
			}
		}),
		"": func(*rapid.T) { w.check() },
	}
}

// counts reports whether the turn counts for its principal.
func counts(t *turn) bool { return t.Items()[0].Bounded }

// principalsShare checks how many bounded turns the principal has. Those that returned from Yield may exceed the bound.
func (w *world) principalsShare(principal string) {
	n := 0
	for t := range w.acting {
		if _, was := w.yielded[t]; !was && counts(t) && t.Items()[0].Principal == principal {
			n++
		}
	}
	if w.perPrincipal > 0 && n > w.perPrincipal {
		w.overlaps = append(w.overlaps, fmt.Sprintf("%d bounded turns of %q at once, limit %d", n, principal, w.perPrincipal))
	}
}

// someShareFull reports whether some principal has as many bounded turns as allowed.
func (w *world) someShareFull() bool {
	used := map[string]int{}
	for t := range w.acting {
		if counts(t) && !w.yielded[t] {
			used[t.Items()[0].Principal]++
		}
	}
	for _, n := range used {
		if w.perPrincipal > 0 && n >= w.perPrincipal {
			return true
		}
	}
	return false
}
