package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestToolsAreAListOrOff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tools string
		want  ToolNames
		fault string
	}{
		{"", nil, ""},
		{"tools: off", ToolNames{"off"}, ""},
		{"tools: [remind, cron]", ToolNames{"remind", "cron"}, ""},
		{"tools: [fly]", nil, "tools must be one of remind, cron, message, sessions, history_search, send_file, spawn, delegate, is"},
		{"tools: []", nil, "tools names no tool; use off for none"},
		{"tools: on", nil, "tools must be a list"},
	} {
		cfg, err := loadText(t, "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", "+tt.tools+"}}\n")
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: got %v, want %q", tt.tools, err, tt.fault)
			}
			continue
		}
		if got := cfg.Agents["main"].Tools; err != nil || !slices.Equal(got, tt.want) || got.Off() != (tt.tools == "tools: off") {
			t.Errorf("%s: got %q and %v, want %q", tt.tools, got, err, tt.want)
		}
	}
	if _, err := loadText(t, "agents: {main: {runner: echo, tools: [cron]}}\n"); err == nil || !strings.Contains(err.Error(), "not of echo") {
		t.Errorf("tools of echo: got %v, want a refusal", err)
	}
}

func loadText(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Options{File: file, LookupEnv: environ()})
	if err != nil {
		return Config{}, err
	}
	return loaded.Config, nil
}
