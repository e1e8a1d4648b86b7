package agent

import (
	"maps"
	"sync"
)

// Ratio is how many tokens a provider counts for each one that [EstimateTokens] estimates, from 0.5 to 2; 0 = not known, which is taken as 1. Estimates err
// high, so most ratios are below 1.
type Ratio float64

// The bounds of a ratio: what lies outside is a provider that reports nonsense.
const (
	leastRatio Ratio = 0.5
	mostRatio  Ratio = 2
)

func (r Ratio) known() Ratio {
	if r == 0 {
		return 1
	}
	return r
}

// Window is how many estimated tokens fit where the provider counts so many.
func (r Ratio) Window(counted int) int { return int(Ratio(counted) / r.known()) }

// Counted is what the provider would count for an estimate.
func (r Ratio) Counted(estimate int) int { return int(Ratio(estimate) * r.known()) }

// New is what text that the provider has not counted yet takes of a [Ratio.Window]: at least as much as estimated, because its script may differ from that of the
// text before it.
func (r Ratio) New(estimate int) int { return r.Window(int(Ratio(estimate) * max(r.known(), 1))) }

// Gauge learns the ratios of one endpoint from what it reports for requests. It is safe for concurrent use; nil knows nothing and learns nothing.
type Gauge struct {
	endpoint string

	mu       sync.Mutex
	models   map[string]Ratio
	sessions map[string]Ratio
}

const (
	// leastGauged is the smallest request that a ratio is learned from, in estimated tokens: in smaller ones the overhead of a message decides.
	leastGauged = 256
	// modelShare and sessionShare are the weights of a new count beside what was known.
	modelShare, sessionShare Ratio = 0.2, 0.5
	// mostSessions and mostModels are of how many sessions and models a gauge remembers a ratio: clients of /v1 may name any model.
	mostSessions, mostModels = 10_000, 100
)

// NewGauge makes a gauge for an endpoint, whose name holds no secret.
func NewGauge(endpoint string) *Gauge {
	return &Gauge{endpoint: endpoint, models: map[string]Ratio{}, sessions: map[string]Ratio{}}
}

// Endpoint is its name.
func (g *Gauge) Endpoint() string { return g.endpoint }

// Ratios are those of all models. The caller owns the map.
func (g *Gauge) Ratios() map[string]Ratio {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.models)
}

// Restore sets what an earlier process has learned of a model.
func (g *Gauge) Restore(model string, r Ratio) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.models[model] = min(max(r, leastRatio), mostRatio)
}

// Ratio is that of a session's last requests, else that of the model, smoothed over all sessions.
func (g *Gauge) Ratio(model, session string) Ratio {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, ok := g.sessions[session]; ok {
		return r
	}
	return g.models[model]
}

// Note learns from a request without pictures: what was estimated for the whole of it, and what the provider counted, cached input included. A ratio of a session
// rises at once and falls slowly, so that a conversation which changes its script does not outgrow its window.
func (g *Gauge) Note(model, session string, estimated, counted int) {
	if g == nil || estimated < leastGauged || counted <= 0 {
		return
	}
	seen := min(max(Ratio(counted)/Ratio(estimated), leastRatio), mostRatio)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sessions) >= mostSessions {
		clear(g.sessions) // the ratio of the model takes their place
	}
	before := g.models[model].known()
	if _, ok := g.models[model]; ok || len(g.models) < mostModels {
		g.models[model] = before + (seen-before)*modelShare
	}
	of, ok := g.sessions[session]
	if !ok {
		of = before
	}
	if seen < of {
		seen = of + (seen-of)*sessionShare
	}
	g.sessions[session] = seen
}
