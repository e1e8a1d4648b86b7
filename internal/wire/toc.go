package wire

// TocListParams are the parameters of toc.list.
type TocListParams struct {
	Level  string `json:"level,omitempty" rule:"enum=day|week|month"` // day (default): a summary for each session and day; week and month: one for all sessions of a principal
	Key    string `json:"key,omitempty" rule:"min=1,max=512"`         // only this session; with level day
	From   string `json:"from,omitempty" rule:"min=1,max=10"`         // the first period, such as 2026-03-14, 2026-W11 or 2026-03
	To     string `json:"to,omitempty" rule:"min=1,max=10"`           // the last period
	Limit  *int64 `json:"limit,omitempty" rule:"min=1,max=100"`       // the most summaries; absent = 20
	Offset int64  `json:"offset,omitempty" rule:"min=0,max=1000000"`  // how many of the newest to skip
}

// TocListResult is the result of toc.list.
type TocListResult struct {
	Count      int       `json:"count"`      // how many this answer has
	Nodes      []TocNode `json:"nodes"`      // the summaries, the newest period first
	HasMore    bool      `json:"hasMore"`    // there may be more
	NextOffset *int64    `json:"nextOffset"` // the offset of the next page; null on the last page
}

// TocNode is one summary.
type TocNode struct {
	Level      string `json:"level" rule:"enum=day|week|month"` // the kind of period
	Period     string `json:"period"`                           // the day, week (ISO 8601) or month, in the time zone of the gateway
	Principal  string `json:"principal"`                        // the owner of the conversations
	SessionKey string `json:"sessionKey,omitempty"`             // the session of a day
	FromSeq    int64  `json:"fromSeq,omitempty"`                // the sequence number of its first message on that day
	ToSeq      int64  `json:"toSeq,omitempty"`                  // the sequence number of its last message on that day
	Messages   int    `json:"messages,omitempty"`               // how many messages it summarises
	Text       string `json:"text"`                             // the summary
	MadeAt     int64  `json:"madeAt"`                           // when it was made, in Unix milliseconds
	Stale      bool   `json:"stale,omitempty"`                  // messages arrived after it was made; the next run of its job replaces it
}
