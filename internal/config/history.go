package config

// History are the settings of earlier conversations.
type History struct {
	// SummaryAgent makes a summary of each day, week and month of the conversations of each person; an agent of runner openai or anthropic.
	// Default: no agent, and no summaries are made.
	SummaryAgent string `yaml:"summary_agent"`
}

func (h History) validate(a at, agents map[string]Agent) {
	if h.SummaryAgent == "" {
		return
	}
	switch agent, ok := agents[h.SummaryAgent]; {
	case !ok:
		a.key("summary_agent").addf("there is no agent %q", h.SummaryAgent)
	case agent.Runner != RunnerOpenAI && agent.Runner != RunnerAnthropic:
		a.key("summary_agent").addf("%q is an agent of runner %s; summaries need one of runner openai or anthropic", h.SummaryAgent, agent.Runner)
	}
}
