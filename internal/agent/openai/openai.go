package openai

import (
	"log/slog"
	"net/http"

	"laneway/internal/agent/internal/model"
)

// Defaults of [Config].
const (
	DefaultBaseURL       = "https://api.openai.com/v1"
	DefaultContextWindow = 32_768
)

// Config of a [Runner]: BaseURL is everything before /chat/completions, default [DefaultBaseURL]; Temperature is 0 to 2, TopP 0 to 1.
type Config = model.Config

// Runner answers with a model. It is safe for concurrent use.
type Runner = model.Runner

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	return model.New(model.Dialect{
		Name: "openai",
		URL: func(base string) string {
			if base == "" {
				base = DefaultBaseURL
			}
			return base + "/chat/completions"
		},
		Filled: func(cfg Config) Config {
			if cfg.ContextWindow == 0 {
				cfg.ContextWindow = max(DefaultContextWindow, 2*cfg.MaxTokens)
			}
			return cfg
		},
		Authorize: func(header http.Header, key string) {
			if key != "" {
				header.Set("Authorization", "Bearer "+key)
			}
		},
		MaxTemperature: 2,
		Body:           body,
		Event: func(a *model.Answer, event model.Object) (bool, error) {
			_, err := take(a, event)
			return false, err
		},
		Whole: take,
	}, cfg, transport, log)
}
