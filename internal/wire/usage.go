package wire

// UsageStatusParams are the parameters of usage.status.
type UsageStatusParams struct{}

// UsageStatusResult is the result of usage.status: the usage of today. A caller that sees only its own data receives only its own usage.
type UsageStatusResult struct {
	Day        string        `json:"day"`        // today, as 2026-03-14
	Timezone   string        `json:"timezone"`   // the time zone in which days begin
	ResetsAtMs int64         `json:"resetsAtMs"` // when the next day begins
	Currency   string        `json:"currency"`   // the currency of all costs
	Today      UsageCount    `json:"today"`      // what was used
	Budgets    []UsageBudget `json:"budgets"`    // the configured budgets
}

// UsageCount is how much was used.
type UsageCount struct {
	Turns        int64 `json:"turns"`        // turns that have ended
	Requests     int64 `json:"requests"`     // requests to models
	InputTokens  int64 `json:"inputTokens"`  // tokens that models read
	OutputTokens int64 `json:"outputTokens"` // tokens that models wrote
	CachedTokens int64 `json:"cachedTokens"` // the part of inputTokens that came from the cache of the provider
	TotalTokens  int64 `json:"totalTokens"`  // the sum of input and output tokens
	CostMicros   int64 `json:"costMicros"`   // cost in millionths of the currency
	UnreportedMs int64 `json:"unreportedMs"` // how long turns ran whose agents reported no tokens
}

// UsageBudget is a budget and its usage.
type UsageBudget struct {
	Kind        string `json:"kind" rule:"enum=turn|job|principal|day"`       // its kind; principal is the budget of the caller
	LimitTokens int64  `json:"limitTokens,omitempty"`                         // limit of tokens
	LimitMicros int64  `json:"limitMicros,omitempty"`                         // limit of costs, in millionths of the currency
	UsedTokens  *int64 `json:"usedTokens,omitempty"`                          // today; absent for turn and job
	UsedMicros  *int64 `json:"usedMicros,omitempty"`                          // today, millionths of the currency; absent for turn and job
	Level       string `json:"level,omitempty" rule:"enum=free|near|reached"` // near from 80 % on; absent for turn and job
}

// UsageListParams are the parameters of usage.list.
type UsageListParams struct {
	From  string `json:"from,omitempty" rule:"min=10,max=10"`                    // first day, as 2026-03-14; default six days before to
	To    string `json:"to,omitempty" rule:"min=10,max=10"`                      // last day, at most 99 days after from; default today
	By    string `json:"by,omitempty" rule:"enum=day|principal|agent|model|job"` // what a row counts besides its day; default day
	Limit int64  `json:"limit,omitempty" rule:"min=1,max=1000"`                  // how many rows; default 200
}

// UsageListResult is the result of usage.list. A caller that sees only its own data receives only its own usage.
type UsageListResult struct {
	From     string     `json:"from"`                                         // first day
	To       string     `json:"to"`                                           // last day
	By       string     `json:"by" rule:"enum=day|principal|agent|model|job"` // what a row counts
	Currency string     `json:"currency"`                                     // the currency of all costs
	Rows     []UsageRow `json:"rows"`                                         // newest day first, then the most tokens
	HasMore  bool       `json:"hasMore"`                                      // there may be more rows than limit
}

// UsageRow is the usage of a day.
type UsageRow struct {
	Day  string `json:"day"`            // as 2026-03-14
	Name string `json:"name,omitempty"` // the principal, agent, model or job; absent by day

	UsageCount
}
