package storetest

import "laneway/internal/store"

func ratioTests() []test {
	return []test{
		{"ARatioIsReplacedAndOutlivesTheProcess", func(w *world) {
			list := try(w.st.TokenRatios(w.ctx)).ok(w)
			equal(w, "ratios", len(list), 0)
			w.ok(w.st.SaveTokenRatios(w.ctx, []store.TokenRatio{{Endpoint: "b", Model: "m", Permille: 500}, {Endpoint: "a", Model: "m", Permille: 2000}}))
			w.ok(w.st.SaveTokenRatios(w.ctx, []store.TokenRatio{{Endpoint: "b", Model: "m", Permille: 700}, {Endpoint: "b", Model: "n", Permille: 1000}}))
			w.st = w.h.Reopen()
			list = try(w.st.TokenRatios(w.ctx)).ok(w)
			equal(w, "ratios", list, []store.TokenRatio{
				{Endpoint: "a", Model: "m", Permille: 2000}, {Endpoint: "b", Model: "m", Permille: 700}, {Endpoint: "b", Model: "n", Permille: 1000},
			})
		}},
	}
}
