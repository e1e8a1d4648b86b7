package usage

import (
	"math"
	"strconv"
	"strings"

	"laneway/internal/chat"
)

// Money is an amount in billionths of the currency of the gateway.
type Money int64

// Unit is one unit of the currency.
const Unit Money = 1_000_000_000

// MoneyOf rounds an amount in units of the currency to a billionth.
func MoneyOf(amount float64) Money { return Money(math.Round(amount * float64(Unit))) }

// Float returns the amount in units of the currency.
func (m Money) Float() float64 { return float64(m) / float64(Unit) }

// String formats the amount with two to six decimal places.
func (m Money) String() string {
	text := strconv.FormatFloat(m.Float(), 'f', 6, 64)
	short := strings.TrimRight(text, "0")
	if dot := strings.IndexByte(text, '.'); len(short) < dot+3 {
		return text[:dot+3]
	}
	return short
}

// Price of a million tokens of each kind, in the currency of the gateway.
type Price struct {
	// Input is the price of uncached input tokens, Cached that of cached ones.
	Input, Output, Cached Money
}

// million is how many tokens a price is for.
const million = 1_000_000

// Of returns the cost of a request, to a billionth. It saturates.
func (p Price) Of(u chat.Usage) Money {
	cached := min(u.CachedTokens, u.InputTokens)
	total := float64(u.InputTokens-cached)*float64(p.Input) + float64(cached)*float64(p.Cached) + float64(u.OutputTokens)*float64(p.Output)
	if total /= million; total < math.MaxInt64 {
		return Money(math.Round(total))
	}
	return math.MaxInt64
}
