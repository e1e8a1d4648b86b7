package wire

// SessionRow is a session.
type SessionRow struct {
	Key                string   `json:"key"`                                                                   // its whole key
	SessionID          string   `json:"sessionId,omitempty"`                                                   // its transcript
	Kind               string   `json:"kind"`                                                                  // the kind of its peer: direct, group, …
	AgentID            string   `json:"agentId"`                                                               // its agent
	IsMain             bool     `json:"isMain"`                                                                // it is the main session of its agent
	Channel            string   `json:"channel,omitempty"`                                                     // the channel of its peer
	CreatedAt          int64    `json:"createdAt,omitempty"`                                                   // when it began, in Unix milliseconds
	UpdatedAt          *int64   `json:"updatedAt"`                                                             // when it last changed, in Unix milliseconds; null = it does not exist yet
	LastInteractionAt  int64    `json:"lastInteractionAt,omitempty"`                                           // when its last message came, in Unix milliseconds
	Status             string   `json:"status,omitempty"`                                                      // running, or how its last run ended
	LastRunID          string   `json:"lastRunId,omitempty"`                                                   // its last run
	LastRunError       string   `json:"lastRunError,omitempty"`                                                // why its last run failed
	LastMessagePreview string   `json:"lastMessagePreview,omitempty"`                                          // the beginning of its last answer
	TotalTokens        int      `json:"totalTokens,omitempty"`                                                 // the tokens of all its runs
	HasActiveRun       bool     `json:"hasActiveRun"`                                                          // a run is active
	ActiveRunIDs       []string `json:"activeRunIds"`                                                          // the active runs
	EffectiveQueueMode string   `json:"effectiveQueueMode" rule:"enum=queue|followup|interrupt|collect|steer"` // what a new message does to its queue
	QueueDepth         int      `json:"queueDepth"`                                                            // how many messages wait
	Lane               string   `json:"lane"`                                                                  // the lane of its runs
	MayReset           bool     `json:"mayReset"`                                                              // the caller may reset it: its owner with write scope, or an administrator
}

// SessionsListParams are the parameters of sessions.list.
type SessionsListParams struct {
	_ struct{} `also:"requireLastInteraction,includeGlobal,includeUnknown,configuredAgentsOnly,includeDerivedTitles,includeLastMessage,label,boardFace,creatorId,ownerId,ownerFirst,involvingMe,involvingProfileId,includePeople,spawnedBy,archived"` //nolint:lll // one list

	Limit         *int64 `json:"limit,omitempty" rule:"min=1,max=200"`                     // the most sessions; absent = 50
	Offset        int64  `json:"offset,omitempty" rule:"min=0"`                            // how many to skip
	AgentID       string `json:"agentId,omitempty" rule:"min=1,max=64"`                    // only sessions of this agent
	Search        string `json:"search,omitempty" rule:"max=256"`                          // only sessions whose key contains this string
	ActiveMinutes int64  `json:"activeMinutes,omitempty" rule:"min=1,max=5256000"`         // only sessions that changed in this many minutes
	SortBy        string `json:"sortBy,omitempty" rule:"enum=updatedAt|lastInteractionAt"` // the newest first by this member; absent = updatedAt
	HideCronRuns  bool   `json:"hideCronRuns,omitempty"`                                   // without the sessions that runs of jobs and tasks have for themselves
}

// SessionsListResult is the result of sessions.list.
type SessionsListResult struct {
	TS                int64          `json:"ts"`                          // the time of the gateway in Unix milliseconds
	Count             int            `json:"count"`                       // how many this answer has
	TotalCount        int            `json:"totalCount"`                  // how many there are; counted up to 1000, or to the end of this page
	TotalIsLowerBound bool           `json:"totalIsLowerBound,omitempty"` // there are more than totalCount
	LimitApplied      int64          `json:"limitApplied"`                // the limit of this answer
	Offset            int64          `json:"offset"`                      // as in the parameters
	NextOffset        *int64         `json:"nextOffset"`                  // the offset of the next page; null on the last page
	HasMore           bool           `json:"hasMore"`                     // more pages follow
	Sessions          []SessionRow   `json:"sessions"`                    // the sessions
	Defaults          map[string]any `json:"defaults"`                    // always empty
}

// SessionsDescribeParams are the parameters of sessions.describe.
type SessionsDescribeParams struct {
	_   struct{} `also:"includeDerivedTitles,includeLastMessage"`
	Key string   `json:"key" rule:"required,min=1,max=512"` // the session
}

// SessionsDescribeResult is the result of sessions.describe.
type SessionsDescribeResult struct {
	Session *SessionRow `json:"session"` // the session; null when it does not exist or is not visible
}

// SessionsSubscribeParams are the parameters of sessions.subscribe: the parameters of a first list, and which events of runs are sent.
type SessionsSubscribeParams struct {
	SessionsListParams

	Deltas   *bool  `json:"deltas,omitempty"`                        // false: only the last event of a run, and no tool events; a run that this connection starts is sent in full
	DeltasOf string `json:"deltasOf,omitempty" rule:"min=1,max=512"` // without deltas: the session whose runs are sent in full
}

// SessionsSubscribeResult is the result of sessions.subscribe.
type SessionsSubscribeResult struct {
	Subscribed bool                `json:"subscribed"`     // always true
	List       *SessionsListResult `json:"list,omitempty"` // as in sessions.list; absent unless the call has parameters of a list
}

// SessionsUnsubscribeResult is the result of sessions.unsubscribe.
type SessionsUnsubscribeResult struct {
	Subscribed bool `json:"subscribed"` // always false
}

// SessionsResetParams are the parameters of sessions.reset.
type SessionsResetParams struct {
	Key            string `json:"key" rule:"required,min=1,max=512"`             // the session
	AgentID        string `json:"agentId,omitempty" rule:"min=1"`                // must be its agent
	Reason         string `json:"reason,omitempty" rule:"enum=new|reset"`        // accepted and ignored
	IdempotencyKey string `json:"idempotencyKey,omitempty" rule:"min=1,max=128"` // names the call, so that it can be sent again
}

// SessionsResetResult is the result of sessions.reset.
type SessionsResetResult struct {
	OK    bool       `json:"ok"`    // always true
	Key   string     `json:"key"`   // the whole key of the session
	Entry ResetEntry `json:"entry"` // the session as it is now
}

// ResetEntry names the transcript that a reset started.
type ResetEntry struct {
	SessionID string `json:"sessionId"` // the new transcript
}

// SessionsDeleteParams are the parameters of sessions.delete.
type SessionsDeleteParams struct {
	_                 struct{} `also:"expectedLifecycleRevision,expectedSessionUpdatedAt,emitLifecycleHooks,archivedOnly"`
	Key               string   `json:"key" rule:"required,min=1,max=512"`                // the session
	AgentID           string   `json:"agentId,omitempty" rule:"min=1"`                   // must be its agent
	DeleteTranscript  *bool    `json:"deleteTranscript,omitempty"`                       // false keeps its transcripts in the store; absent = true
	DeleteBranches    bool     `json:"deleteBranches,omitempty"`                         // also delete the sessions of its principal that branched off it; false: they keep the entries before their branch
	ExpectedSessionID string   `json:"expectedSessionId,omitempty" rule:"min=1,max=128"` // refuse when it has another transcript
	IdempotencyKey    string   `json:"idempotencyKey,omitempty" rule:"min=1,max=128"`    // names the call, so that it can be sent again
}

// SessionsDeleteResult is the result of sessions.delete.
type SessionsDeleteResult struct {
	OK       bool     `json:"ok"`       // always true
	Key      string   `json:"key"`      // the whole key of the session
	Deleted  bool     `json:"deleted"`  // false: it did not exist
	Archived []string `json:"archived"` // the transcript that was kept
}

// SessionsSearchParams are the parameters of sessions.search.
type SessionsSearchParams struct {
	Query    string `json:"query" rule:"required,min=1,max=512"`                 // the words; at most 16
	Key      string `json:"key,omitempty" rule:"min=1,max=512"`                  // only in this session
	AgentID  string `json:"agentId,omitempty" rule:"min=1,max=64"`               // only in sessions of an agent
	SinceMs  *int64 `json:"sinceMs,omitempty" rule:"min=0,max=9007199254740991"` // only from this time on, in Unix milliseconds
	UntilMs  *int64 `json:"untilMs,omitempty" rule:"min=0,max=9007199254740991"` // only up to this time, in Unix milliseconds
	Limit    *int64 `json:"limit,omitempty" rule:"min=1,max=100"`                // the most messages; absent = 20
	MaxChars *int64 `json:"maxChars,omitempty" rule:"min=1,max=1000"`            // characters of an excerpt; absent = 240
}

// SessionsSearchResult is the result of sessions.search.
type SessionsSearchResult struct {
	Count       int         `json:"count"`       // how many this answer has
	Hits        []SearchHit `json:"hits"`        // the messages, the newest first
	HasMore     bool        `json:"hasMore"`     // there may be older ones
	NextUntilMs *int64      `json:"nextUntilMs"` // the untilMs that continues the search; messages of that millisecond are repeated; null = there are no older messages
}

// SearchHit is a message that a search found.
type SearchHit struct {
	SessionKey string `json:"sessionKey"`      // its session
	SessionID  string `json:"sessionId"`       // its transcript
	AgentID    string `json:"agentId"`         // the agent of its session
	MessageID  string `json:"messageId"`       // its id, as in chat.history
	Seq        int64  `json:"seq"`             // its number in the session
	Role       string `json:"role"`            // user, assistant or system
	Timestamp  int64  `json:"timestamp"`       // when it was stored, in Unix milliseconds
	RunID      string `json:"runId,omitempty"` // its run
	Excerpt    string `json:"excerpt"`         // the part of its text around the first match
}
