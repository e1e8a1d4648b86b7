package wire

// Question is an open question of an agent to a person.
type Question struct {
	ID          string           `json:"id"`              // for questions.answer
	SessionKey  string           `json:"sessionKey"`      // the session in which it was asked
	AgentID     string           `json:"agentId"`         // the agent that asks
	RunID       string           `json:"runId,omitempty"` // the run that waits for the answer; absent when the run has ended, and the call is made once it is allowed
	Principal   string           `json:"principal"`       // the principal whose answer counts
	Mine        bool             `json:"mine"`            // the answer of this caller counts
	Text        string           `json:"text"`            // the action that the agent asks permission for
	Act         string           `json:"act,omitempty"`   // the same without its further arguments; absent when it is the same as the whole action
	Options     []QuestionOption `json:"options"`         // the options; the first has the number 1
	AskedAtMs   int64            `json:"askedAtMs"`       // in Unix milliseconds
	ExpiresAtMs int64            `json:"expiresAtMs"`     // when it can no longer be answered, in Unix milliseconds
}

// QuestionOption is one answer to a question.
type QuestionOption struct {
	Label  string `json:"label"`            // a word of the gateway, then the label of the agent
	Allow  bool   `json:"allow"`            // the agent does the action
	Always bool   `json:"always,omitempty"` // the answer applies to every later question with the same act in the conversation
}

// QuestionsListParams are the parameters of questions.list.
type QuestionsListParams struct {
	Limit *int64 `json:"limit,omitempty" rule:"min=1,max=200"` // the most questions; absent = 100
}

// QuestionsListResult is the result of questions.list.
type QuestionsListResult struct {
	TS        int64      `json:"ts"`        // the time of the gateway in Unix milliseconds
	Questions []Question `json:"questions"` // the oldest first
}

// QuestionsAnswerParams are the parameters of questions.answer.
type QuestionsAnswerParams struct {
	ID     string `json:"id" rule:"required,min=1,max=128"`     // the question
	Option int64  `json:"option" rule:"required,min=1,max=100"` // the number of the chosen option
}

// QuestionsAnswerResult is the result of questions.answer.
type QuestionsAnswerResult struct {
	OK   bool   `json:"ok"`   // always true
	Text string `json:"text"` // the effect of the answer
}

// QuestionsChanged is the payload of the event questions.changed.
type QuestionsChanged struct {
	SessionKey string `json:"sessionKey"`                               // the session in which it was asked
	Reason     string `json:"reason" rule:"enum=asked|answered|closed"` // closed: the turn no longer waits
	TS         int64  `json:"ts"`                                       // when it happened, in Unix milliseconds
}
