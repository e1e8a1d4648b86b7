package config

import (
	"math"
	"regexp"
)

// Price is the price of a million tokens of an agent, in the currency of [Budgets]. Costs are counted when Input and Output are given.
type Price struct {
	// Input is the price of a million tokens that the model reads, Output of those that it writes, at most 1000000. 0 = free of charge.
	Input  *float64 `yaml:"input"`
	Output *float64 `yaml:"output"`
	// Cached is the price of a million tokens that came from the provider's cache. Default: Input.
	Cached *float64 `yaml:"cached"`
}

// Amounts returns the three prices; 0 for a price that is not given.
func (p Price) Amounts() (input, output, cached float64) {
	or := func(v *float64, other float64) float64 {
		if v == nil {
			return other
		}
		return *v
	}
	input = or(p.Input, 0)
	return input, or(p.Output, 0), or(p.Cached, input)
}

// known reports whether requests of the agent can be priced.
func (p Price) known() bool { return p.Input != nil && p.Output != nil }

func (p Price) validate(a at) {
	for _, amount := range []struct {
		name  string
		value *float64
	}{{"input", p.Input}, {"output", p.Output}, {"cached", p.Cached}} {
		if amount.value != nil {
			a.amount(amount.name, *amount.value, maxPrice)
		}
	}
	if p != (Price{}) && !p.known() {
		a.addf("needs input and output; use 0 where tokens cost nothing")
	}
}

const (
	maxPrice  = 1_000_000
	maxMoney  = 1_000_000_000
	maxTokens = 1 << 50
)

// amount reports a number below 0 or above most.
func (a at) amount(name string, value, most float64) {
	if value < 0 || value > most || math.IsNaN(value) {
		a.key(name).addf("must be between 0 and %g, is %g", most, value)
	}
}

// Budgets limit what agents use. A turn that has exceeded one ends before its next request to a model.
type Budgets struct {
	// Currency of prices and budgets, three letters. Default USD.
	Currency string `yaml:"currency"`
	// Turn limits one turn; Job the turns of one job on one day, Principal those of one person, hook or credential, Day those of all. Days
	// begin in the time zone cron.timezone.
	Turn      Budget `yaml:"turn"`
	Job       Budget `yaml:"job"`
	Principal Budget `yaml:"principal"`
	Day       Budget `yaml:"day"`
}

// Budget is a limit of tokens, of money, or of both. The limit that is reached first applies.
type Budget struct {
	// Tokens that models read and write. Default 0 = no limit.
	Tokens int `yaml:"tokens"`
	// Money in the currency of the budgets. Default 0 = no limit.
	Money float64 `yaml:"money"`
}

var currencyRule = regexp.MustCompile(`^[A-Z]{3}$`)

func (b Budgets) validate(a at) {
	if !currencyRule.MatchString(b.Currency) {
		a.key("currency").addf("must be three capital letters such as EUR, is %q", b.Currency)
	}
	for name, one := range b.all() {
		a.key(name).between("tokens", one.Tokens, 0, maxTokens)
		a.key(name).amount("money", one.Money, maxMoney)
	}
}

func (b Budgets) all() map[string]Budget {
	return map[string]Budget{"turn": b.Turn, "job": b.Job, "principal": b.Principal, "day": b.Day}
}

// checkPrices reports a money budget when the requests of an agent have no price, because it would limit nothing.
func (c Config) checkPrices(root at) {
	money := false
	for _, one := range c.Budgets.all() {
		money = money || one.Money > 0
	}
	if !money {
		return
	}
	for _, id := range sortedNames(c.Agents) {
		a := c.Agents[id]
		if (a.Runner == RunnerOpenAI || a.Runner == RunnerAnthropic) && !a.Price.known() {
			root.key("agents").key(id).key("price").addf("is needed because there is a budget of money; give input and output for a million tokens, 0 where they cost nothing")
		}
	}
}
