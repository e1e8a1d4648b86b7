package config

import (
	"strings"
	"testing"
)

func TestSummariesNeedAModel(t *testing.T) {
	t.Parallel()
	agents := "agents: {main: {runner: echo}, notes: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\"}}\n"
	cfg, err := loadText(t, agents+"history: {summary_agent: notes}\n")
	if err != nil || cfg.History.SummaryAgent != "notes" {
		t.Errorf("got %q, %v", cfg.History.SummaryAgent, err)
	}
	for name, want := range map[string]string{"main": "is an agent of runner echo", "other": "there is no agent"} {
		if _, err := loadText(t, agents+"history: {summary_agent: "+name+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}
