package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"laneway/internal/config"
)

// pickModels replaces the model auto by the first model that the endpoint of the agent lists.
func pickModels(ctx context.Context, agents map[string]config.Agent, log *slog.Logger) error {
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		a := agents[id]
		if a.Runner != config.RunnerOpenAI || a.Model != config.ModelAuto {
			continue
		}
		bound, cancel := context.WithTimeout(ctx, probeTime)
		model, err := firstModel(bound, a)
		cancel()
		if err != nil {
			return fmt.Errorf("agent %s: choosing a model: %w", id, err)
		}
		log.InfoContext(ctx, "the first model of the endpoint answers; name another as the agent's model", "agent", id, "model", model)
		a.Model = model
		agents[id] = a
	}
	return nil
}

// firstModel is the first model in the list of an endpoint.
func firstModel(ctx context.Context, a config.Agent) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(a.BaseURL, "/")+"/models", nil)
	if err != nil {
		return "", fmt.Errorf("reading base_url: %w", err)
	}
	if a.APIKey.IsSet() {
		req.Header.Set("Authorization", "Bearer "+a.APIKey.Reveal())
	}
	resp, err := roundTrip(req)
	if err != nil {
		return "", fmt.Errorf("%s does not answer; start it, or name a model: %w", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list modelList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxModels)).Decode(&list); err != nil || len(list.Data) == 0 {
		if req.URL.Port() == ollamaPort {
			return "", fmt.Errorf("%s has no model yet; run: ollama pull llama3.2", req.URL.Host)
		}
		return "", fmt.Errorf("%s lists no model (%s); name one", req.URL.Host, resp.Status)
	}
	return list.Data[0].ID, nil
}
