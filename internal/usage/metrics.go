package usage

import (
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/metrics"
)

// counters are the metrics of a [Meter]. They name only the configured models of agents, and
// "other".
type counters struct {
	tokens, cost, refusals *prometheus.CounterVec
	dropped                prometheus.Counter
}

func newCounters(r prometheus.Registerer, models map[string]string) *counters {
	in := metrics.In(r)
	c := &counters{
		tokens:   in.Counters("model_tokens_total", "Tokens of each request, also of turns that crash or that you stop; input does not include cached tokens.", "agent", "model", "kind"),
		cost:     in.Counters("model_cost_total", "Cost of tokens in the currency of the budgets, by agent and model.", "agent", "model"),
		refusals: in.Counters("budget_refusals_total", "Requests to models that a budget has prevented.", "budget"),
		dropped:  in.Counter("usage_records_dropped_total", "Usage records that the store rejected permanently. The other metrics include them; reports and budgets do not."),
	}
	for _, kind := range []Kind{KindTurn, KindJob, KindPrincipal, KindDay} {
		c.refusals.WithLabelValues(string(kind))
	}
	for agent, model := range models {
		c.used(agent, model, chat.Usage{}, 0)
	}
	return c
}

func (c *counters) used(agent, model string, used chat.Usage, cost Money) {
	cached := min(used.CachedTokens, used.InputTokens)
	c.tokens.WithLabelValues(agent, model, "input").Add(float64(used.InputTokens - cached))
	c.tokens.WithLabelValues(agent, model, "cached").Add(float64(cached))
	c.tokens.WithLabelValues(agent, model, "output").Add(float64(used.OutputTokens))
	c.cost.WithLabelValues(agent, model).Add(cost.Float())
}
