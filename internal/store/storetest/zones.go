package storetest

func zoneTests() []test {
	return []test{
		{"AChoiceReplacesTheLastAndOutlivesTheProcess", func(w *world) {
			w.wantZone("ann", "")
			w.ok(w.st.SetZone(w.ctx, "ann", "Europe/Berlin"))
			w.ok(w.st.SetZone(w.ctx, "bob", "+02:00"))
			w.ok(w.st.SetZone(w.ctx, "ann", "Asia/Tokyo"))
			w.st = w.h.Reopen()
			w.wantZone("ann", "Asia/Tokyo")
			w.wantZone("bob", "+02:00")
		}},
		{"AChoiceIsTakenBack", func(w *world) {
			w.ok(w.st.SetZone(w.ctx, "ann", "Europe/Berlin"))
			for range 2 { // the second time none is left
				w.ok(w.st.SetZone(w.ctx, "ann", ""))
				w.wantZone("ann", "")
			}
		}},
	}
}

func (w *world) wantZone(principal, want string) {
	w.Helper()
	got := try(w.st.ZoneOf(w.ctx, principal)).ok(w)
	if got != want {
		w.Errorf("the zone of %s is %q, want %q", principal, got, want)
	}
}
