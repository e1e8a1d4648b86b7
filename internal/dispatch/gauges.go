package dispatch

import (
	"context"
	"time"

	"laneway/internal/agent"
	"laneway/internal/store"
)

const (
	// gaugesSaved is the interval at which changed ratios are stored.
	gaugesSaved = time.Minute
	// gaugesTime limits the write at shutdown.
	gaugesTime = time.Second
	// ratioChange is the smallest change of a ratio that is stored, in thousandths.
	ratioChange = 20
)

// gauges preserves across restarts how endpoints count tokens. A replica starts with the ratios of other replicas; the last write wins.
type gauges struct {
	*parts

	saved map[store.TokenRatio]int // by endpoint and model; used by load, and then by run
}

// all returns the gauges of the agents; agents of one endpoint share one.
func (g *gauges) all() map[string]*agent.Gauge {
	by := map[string]*agent.Gauge{}
	for _, a := range g.agents {
		if a.Gauge != nil {
			by[a.Gauge.Endpoint()] = a.Gauge
		}
	}
	return by
}

// load sets the gauges to the stored ratios. Without them the first requests err high, so a failure is only a warning.
func (g *gauges) load(ctx context.Context) {
	by := g.all()
	if len(by) == 0 {
		return
	}
	list, err := g.store.TokenRatios(ctx)
	if err != nil {
		g.log.WarnContext(ctx, "how endpoints count tokens is not known; windows are used by estimates that err high", "err", err)
	}
	for _, t := range list {
		if gauge := by[t.Endpoint]; gauge != nil {
			gauge.Restore(t.Model, agent.Ratio(t.Permille)/1000)
			g.saved[store.TokenRatio{Endpoint: t.Endpoint, Model: t.Model}] = t.Permille
		}
	}
}

// run stores ratios that have changed, once a minute and at shutdown.
func (g *gauges) run(ctx context.Context) {
	t := time.NewTicker(gaugesSaved)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			g.save(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), gaugesTime)
			defer cancel()
			g.save(last)
			return
		}
	}
}

func (g *gauges) save(ctx context.Context) {
	var changed []store.TokenRatio
	for endpoint, gauge := range g.all() {
		for model, ratio := range gauge.Ratios() {
			t := store.TokenRatio{Endpoint: endpoint, Model: model}
			permille := int(1000 * ratio)
			if before, ok := g.saved[t]; ok && max(before-permille, permille-before) < ratioChange {
				continue
			}
			t.Permille = permille
			changed = append(changed, t)
		}
	}
	if len(changed) == 0 {
		return
	}
	if err := g.store.SaveTokenRatios(ctx, changed); err != nil {
		g.log.WarnContext(ctx, "how endpoints count tokens was not stored", "err", err)
		return
	}
	for _, t := range changed {
		g.saved[store.TokenRatio{Endpoint: t.Endpoint, Model: t.Model}] = t.Permille
	}
}
