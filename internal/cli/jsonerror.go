package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/app"
	"laneway/internal/client"
	"laneway/internal/config"
)

// Codes of errors that do not come from a gateway.
const (
	codeFailure       = "FAILURE"
	codeUsage         = "USAGE"
	codeConfiguration = "CONFIGURATION"
)

// errorReport is the error of a command with --json. It is written to standard error as one line, so that standard output has only data.
type errorReport struct {
	// Code is the gateway's code, or USAGE, CONFIGURATION or FAILURE; DetailCode is the gateway's detail code.
	Code       string `json:"code"`
	DetailCode string `json:"detailCode,omitempty"`
	Message    string `json:"message"`
	ExitStatus int    `json:"exitStatus"`
	Retryable  bool   `json:"retryable,omitempty"`
	// RetryAfterMs is 0 when the gateway gives no time.
	RetryAfterMs int64 `json:"retryAfterMs,omitempty"`
	// Faults are the lines of a configuration that must not start.
	Faults []string `json:"faults,omitempty"`
}

// wantsJSON reports whether a command line requests JSON, even if it cannot be parsed.
func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--json" || strings.HasPrefix(arg, "--json=") && arg != "--json=false"
	})
}

// failJSON prints the report of err and returns its exit status.
func (env *environment) failJSON(err error) int {
	r := reportError(err)
	line, bad := json.Marshal(map[string]any{"error": r})
	if bad != nil { // strings and numbers can always be encoded
		line = []byte(`{"error":{"code":"` + codeFailure + `"}}`)
	}
	_, _ = fmt.Fprintf(env.stderr, "%s\n", line)
	return r.ExitStatus
}

func reportError(err error) errorReport {
	r := errorReport{Code: codeFailure, Message: oneLine(err.Error()), ExitStatus: exitFailure}
	var (
		usage   usageError
		refused config.FaultsError
		gateway *client.Error
	)
	switch {
	case errors.As(err, &refused):
		r.Code, r.ExitStatus, r.Message = codeConfiguration, config.ExitCode, "the configuration must not start"
		for _, line := range refused.Lines() {
			r.Faults = append(r.Faults, oneLine(line))
		}
	case errors.Is(err, app.ErrUnreleased):
		r.Code, r.ExitStatus = codeConfiguration, config.ExitCode
	case errors.As(err, &usage):
		r.Code, r.ExitStatus = codeUsage, exitUsage
	case errors.As(err, &gateway):
		r.Code, r.DetailCode, r.Retryable, r.RetryAfterMs = gateway.Code, gateway.DetailCode, gateway.Retryable, gateway.RetryAfter.Milliseconds()
	}
	return r
}
