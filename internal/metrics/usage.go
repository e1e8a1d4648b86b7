package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/usage"
)

// Usage makes the observer of package usage; call it once. models are the configured models by agent, whose series begin at zero.
func (m *Metrics) Usage(models map[string]string) usage.Observer {
	o := usageObserver{
		tokens:  m.counters("model_tokens_total", "Tokens of each request, by agent and model, also of turns that crash or are stopped. Input leaves out cached ones, which the provider had in its cache.", "agent", "model", "kind"),
		cost:    m.counters("model_cost_total", "Cost of tokens in the currency of the budgets, by agent and model.", "agent", "model"),
		refused: m.counters("budget_refusals_total", "Requests to models that a budget has prevented.", "budget"),
		dropped: m.counter("usage_records_dropped_total", "Records of usage that the store refuses for good. They are in the other metrics and in no counter."),
	}
	for _, kind := range []usage.Kind{usage.KindTurn, usage.KindJob, usage.KindPrincipal, usage.KindDay} {
		o.refused.WithLabelValues(string(kind))
	}
	for agent, model := range models {
		o.Used(agent, model, chat.Usage{}, 0)
	}
	return o
}

type usageObserver struct {
	tokens, cost, refused *prometheus.CounterVec
	dropped               prometheus.Counter
}

// Used implements usage.Observer.
func (o usageObserver) Used(agent, model string, used chat.Usage, cost usage.Money) {
	cached := min(used.CachedTokens, used.InputTokens)
	o.tokens.WithLabelValues(agent, model, "input").Add(float64(used.InputTokens - cached))
	o.tokens.WithLabelValues(agent, model, "cached").Add(float64(cached))
	o.tokens.WithLabelValues(agent, model, "output").Add(float64(used.OutputTokens))
	o.cost.WithLabelValues(agent, model).Add(cost.Float())
}

// Refused implements usage.Observer.
func (o usageObserver) Refused(kind usage.Kind) { o.refused.WithLabelValues(string(kind)).Inc() }

// Dropped implements usage.Observer.
func (o usageObserver) Dropped() { o.dropped.Inc() }
