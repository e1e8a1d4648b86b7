package agent

import (
	"maps"
	"sync"
)

// Ratio is how many tokens a provider counts for each token that [EstimateTokens] estimates, from 0.5 to 2. 0 means unknown and is taken as 1.
// Estimates err high, so most ratios are below 1.
type Ratio float64

// The bounds of a ratio: a provider that reports a value outside of them reports nonsense.
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

// Window returns how many estimated tokens fit into so many tokens of the provider.
func (r Ratio) Window(counted int) int { return int(Ratio(counted) / r.known()) }

// Counted returns what the provider would count for an estimate.
func (r Ratio) Counted(estimate int) int { return int(Ratio(estimate) * r.known()) }

// New returns how much of a [Ratio.Window] new text takes that the provider has not counted yet: at least its estimate, because its script may differ
// from that of earlier text.
func (r Ratio) New(estimate int) int { return r.Window(int(Ratio(estimate) * max(r.known(), 1))) }

// Gauge computes the ratios of one endpoint from the usage that it reports. It is safe for concurrent use; a nil Gauge has no ratios and records
// nothing.
type Gauge struct {
	endpoint string

	mu       sync.Mutex
	models   map[string]Ratio
	sessions map[string]Ratio
}

const (
	// leastGauged is the smallest request that a ratio is computed from, in estimated tokens: in smaller ones the overhead of a message dominates.
	leastGauged = 256
	// modelShare and sessionShare are the weights of a new count against the previous ratio.
	modelShare, sessionShare Ratio = 0.2, 0.5
	// mostSessions and mostModels bound the sessions and models whose ratio a gauge keeps: clients of /v1 may name any model.
	mostSessions, mostModels = 10_000, 100
)

// NewGauge makes a gauge for an endpoint. The name must not contain a secret.
func NewGauge(endpoint string) *Gauge {
	return &Gauge{endpoint: endpoint, models: map[string]Ratio{}, sessions: map[string]Ratio{}}
}

// Endpoint returns the name of the endpoint.
func (g *Gauge) Endpoint() string { return g.endpoint }

// Ratios returns the ratios of all models. The caller owns the map.
func (g *Gauge) Ratios() map[string]Ratio {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.models)
}

// Restore sets the ratio of a model that an earlier process has computed.
func (g *Gauge) Restore(model string, r Ratio) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.models[model] = min(max(r, leastRatio), mostRatio)
}

// Ratio returns the ratio of a session's last requests, otherwise that of the model, smoothed over all sessions.
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

// Note updates the ratios from a request without pictures: estimated is the estimate for all of it, counted what the provider counted, cached input
// included. A session's ratio rises at once and falls slowly, so that a conversation which changes its script does not exceed its window.
func (g *Gauge) Note(model, session string, estimated, counted int) {
	if g == nil || estimated < leastGauged || counted <= 0 {
		return
	}
	seen := min(max(Ratio(counted)/Ratio(estimated), leastRatio), mostRatio)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sessions) >= mostSessions {
		clear(g.sessions) // the ratio of the model is used instead
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
