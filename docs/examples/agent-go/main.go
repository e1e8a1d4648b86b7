// Command agent-go is an agent in Go, for the runner command with `input: json`: the request is one
// JSON object on standard input, the answer is JSON lines.
//
//	go build -o agent-go ./docs/examples/agent-go
//
//	agents:
//	  main: {runner: command, command: [/path/to/agent-go], input: json}
//
// It answers with the conversation so far, one line for each entry, and exits cleanly when its turn
// is stopped. If the message asks for tools, it lists those of its turn with the official MCP
// client.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// request has the members of a turn that this program uses; docs/agents.md lists all of them.
type request struct {
	Prompt  string `json:"prompt"`
	History []struct {
		Role string `json:"role"`
		Text string `json:"text"`
	} `json:"history"`
}

// line is one line of the answer.
type line struct {
	Delta string `json:"delta,omitempty"`
	Error string `json:"error,omitempty"`
	// Reason classifies an error, see docs/agents.md; default program.
	Reason string `json:"reason,omitempty"`
}

func main() {
	// A stop is SIGTERM; two seconds later the process group is killed.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) //nolint:forbidigo // a program of its own
	err := answer(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // as above
	}
}

// answer reads a request and writes lines until the answer is complete or ctx has ended.
func answer(ctx context.Context, in io.Reader, out io.Writer) error {
	var req request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	lines := json.NewEncoder(out)
	switch {
	case strings.HasPrefix(req.Prompt, "fail"):
		return lines.Encode(line{Error: "I could not reach the build server.", Reason: "connection"})
	case strings.HasPrefix(req.Prompt, "tools"):
		names, err := tools(ctx, os.Getenv("LANEWAY_MCP_URL"), os.Getenv("LANEWAY_MCP_TOKEN")) //nolint:forbidigo // as above
		if err != nil {
			return err
		}
		return lines.Encode(line{Delta: "I have " + strings.Join(names, ", ")})
	}
	for _, entry := range req.History {
		if err := lines.Encode(line{Delta: entry.Role + ": " + entry.Text + "\n"}); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
	words := strings.SplitAfter(req.Prompt, " ")
	for _, word := range words {
		if err := lines.Encode(line{Delta: word}); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
		select {
		case <-time.After(20 * time.Millisecond): //nolint:forbidigo // simulates work
		case <-ctx.Done():
			return nil // stopped: the lines written so far are kept
		}
	}
	return nil
}

// tools returns the names of the tools that this turn may call. session.CallTool calls one.
func tools(ctx context.Context, url, token string) (names []string, err error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "agent-go", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway's tools: %w", err)
	}
	defer func() { _ = session.Close() }() // the server keeps no state
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing the gateway's tools: %w", err)
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

// bearer adds the token to each request.
type bearer string

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
