package app

import (
	"laneway/internal/config"
	"laneway/internal/usage"
)

// usageConfig returns the prices and budgets of agents.
func (p *Process) usageConfig() usage.Config {
	out := usage.Config{Budgets: budgetsOf(p.cfg.Budgets), Prices: map[string]usage.Price{}, Models: map[string]string{}}
	for id, a := range p.cfg.Agents {
		input, output, cached := a.Price.Amounts()
		out.Prices[id] = usage.Price{Input: usage.MoneyOf(input), Output: usage.MoneyOf(output), Cached: usage.MoneyOf(cached)}
		out.Models[id] = a.Model
	}
	out.Observer = p.metrics.Usage(out.Models)
	return out
}

func budgetsOf(b config.Budgets) usage.Budgets {
	limit := func(one config.Budget) usage.Limit {
		return usage.Limit{Tokens: int64(one.Tokens), Cost: usage.MoneyOf(one.Money)}
	}
	return usage.Budgets{Currency: b.Currency, Turn: limit(b.Turn), Job: limit(b.Job), Principal: limit(b.Principal), Day: limit(b.Day)}
}
