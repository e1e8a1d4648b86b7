package wire

// NoParams are the parameters of a method that takes none.
type NoParams struct{}

// CommandsListParams are the parameters of commands.list. All but includeArgs are accepted and ignored.
type CommandsListParams struct {
	SessionKey  string `json:"sessionKey,omitempty" rule:"min=1"`            // accepted and ignored
	AgentID     string `json:"agentId,omitempty" rule:"min=1"`               // accepted and ignored
	Provider    string `json:"provider,omitempty" rule:"min=1"`              // accepted and ignored
	Scope       string `json:"scope,omitempty" rule:"enum=text|native|both"` // accepted and ignored
	IncludeArgs *bool  `json:"includeArgs,omitempty"`                        // whether the answer has args; absent = true
}

// CommandsListResult is the result of commands.list.
type CommandsListResult struct {
	Commands []CommandEntry `json:"commands"` // the chat commands
}

// CommandEntry is a chat command.
type CommandEntry struct {
	Name        string       `json:"name"`                                                               // without the slash
	TextAliases []string     `json:"textAliases"`                                                        // the forms that start a message: /name and its aliases
	Description string       `json:"description"`                                                        // one sentence
	Category    string       `json:"category" rule:"enum=session|options|status|management|media|tools"` // its group in the help
	Source      string       `json:"source" rule:"enum=native"`                                          // always native
	Scope       string       `json:"scope" rule:"enum=both"`                                             // always both
	AcceptsArgs bool         `json:"acceptsArgs"`                                                        // whether arguments may follow the name
	Args        []CommandArg `json:"args,omitempty"`                                                     // the arguments
}

// CommandArg is an argument of a chat command.
type CommandArg struct {
	Name        string `json:"name" rule:"enum=args"`   // always args
	Description string `json:"description"`             // what it is
	Type        string `json:"type" rule:"enum=string"` // always string
	Required    bool   `json:"required"`                // always false
}

// QuestionListResult is the result of question.list: this gateway has no questions.
type QuestionListResult struct {
	Questions []any `json:"questions" rule:"max=0"` // always empty
}

// ApprovalListResult is the result of plugin.approval.list: always empty, this gateway has no approvals.
type ApprovalListResult []any

// TaskSuggestionsListParams are the parameters of taskSuggestions.list.
type TaskSuggestionsListParams struct {
	SessionKey string `json:"sessionKey,omitempty" rule:"min=1,max=512"` // accepted and ignored
	AgentID    string `json:"agentId,omitempty" rule:"min=1,max=128"`    // accepted and ignored
}

// TaskSuggestionsListResult is the result of taskSuggestions.list: this gateway has no suggestions.
type TaskSuggestionsListResult struct {
	Suggestions []any `json:"suggestions" rule:"max=0"` // always empty
}
