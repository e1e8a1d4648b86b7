package wire

// UsageStatusParams are the parameters of usage.status.
type UsageStatusParams struct{}

// UsageStatusResult is the result of usage.status: what is used of today. A caller that sees its own only gets its own.
type UsageStatusResult struct {
	Day        string        `json:"day"`        // today, as 2026-03-14
	Timezone   string        `json:"timezone"`   // the zone in which days begin
	ResetsAtMs int64         `json:"resetsAtMs"` // when the next day begins
	Currency   string        `json:"currency"`   // of all costs
	Today      UsageCount    `json:"today"`      // what was used
	Budgets    []UsageBudget `json:"budgets"`    // those that are configured
}

// UsageCount is how much was used.
type UsageCount struct {
	Turns        int64 `json:"turns"`        // turns that have ended
	Requests     int64 `json:"requests"`     // requests to models
	InputTokens  int64 `json:"inputTokens"`  // tokens that models have read
	OutputTokens int64 `json:"outputTokens"` // tokens that they have written
	CachedTokens int64 `json:"cachedTokens"` // the part of inputTokens that the provider had in its cache
	TotalTokens  int64 `json:"totalTokens"`  // input and output
	CostMicros   int64 `json:"costMicros"`   // cost in millionths of the currency
	UnreportedMs int64 `json:"unreportedMs"` // how long turns ran whose agents reported no tokens
}

// UsageBudget is a budget and what is used of it.
type UsageBudget struct {
	Kind        string `json:"kind" rule:"enum=turn|job|principal|day"`       // what it is for; principal is the caller's own
	LimitTokens int64  `json:"limitTokens,omitempty"`                         // bound of tokens
	LimitMicros int64  `json:"limitMicros,omitempty"`                         // bound of costs, millionths of the currency
	UsedTokens  *int64 `json:"usedTokens,omitempty"`                          // today; absent for turn and job
	UsedMicros  *int64 `json:"usedMicros,omitempty"`                          // today, millionths of the currency; absent for turn and job
	Level       string `json:"level,omitempty" rule:"enum=free|near|reached"` // near from 80 % on; absent for turn and job
}

// UsageListParams are the parameters of usage.list.
type UsageListParams struct {
	From  string `json:"from,omitempty" rule:"min=10,max=10"`                    // first day, as 2026-03-14; default six days before to
	To    string `json:"to,omitempty" rule:"min=10,max=10"`                      // last day, at most 99 days behind from; default today
	By    string `json:"by,omitempty" rule:"enum=day|principal|agent|model|job"` // what a row is for besides its day; default day
	Limit int64  `json:"limit,omitempty" rule:"min=1,max=1000"`                  // how many rows; default 200
}

// UsageListResult is the result of usage.list. A caller that sees its own only gets its own.
type UsageListResult struct {
	From     string     `json:"from"`                                         // first day
	To       string     `json:"to"`                                           // last day
	By       string     `json:"by" rule:"enum=day|principal|agent|model|job"` // what a row is for
	Currency string     `json:"currency"`                                     // of all costs
	Rows     []UsageRow `json:"rows"`                                         // newest day first, then the most tokens
	HasMore  bool       `json:"hasMore"`                                      // there may be more rows than limit
}

// UsageRow is what was used on a day.
type UsageRow struct {
	Day  string `json:"day"`            // as 2026-03-14
	Name string `json:"name,omitempty"` // the principal, agent, model or job; absent by day

	UsageCount
}
