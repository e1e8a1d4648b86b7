package anthropic

import (
	"log/slog"
	"net/http"
	"strings"

	"laneway/internal/agent/internal/model"
)

// Defaults of [Config].
const (
	DefaultBaseURL       = "https://api.anthropic.com"
	DefaultContextWindow = 200_000
	DefaultMaxTokens     = 8_192
	// apiVersion is the version of the API that this package was written for.
	apiVersion = "2023-06-01"
)

// Config of a [Runner]: BaseURL is everything before /v1/messages, and a /v1 at its end is accepted, default [DefaultBaseURL]; Temperature and TopP are 0
// to 1.
type Config = model.Config

// Runner answers with a model. It is safe for concurrent use.
type Runner = model.Runner

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	return model.New(model.Dialect{
		Name: "anthropic",
		URL: func(base string) string {
			if base == "" {
				base = DefaultBaseURL
			}
			return strings.TrimSuffix(base, "/v1") + "/v1/messages"
		},
		Filled: func(cfg Config) Config {
			if cfg.ContextWindow == 0 {
				cfg.ContextWindow = DefaultContextWindow
			}
			if cfg.MaxTokens == 0 {
				cfg.MaxTokens = min(DefaultMaxTokens, cfg.ContextWindow/2)
			}
			return cfg
		},
		Authorize: func(header http.Header, key string) {
			header.Set("Anthropic-Version", apiVersion)
			if key != "" {
				header.Set("X-Api-Key", key)
			}
		},
		MaxTemperature: 1,
		Body:           body,
		Event:          event,
		Whole:          whole,
	}, cfg, transport, log)
}
