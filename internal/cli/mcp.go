package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	gatewaymcp "laneway/internal/gateway/mcp"
	"laneway/internal/secret"
)

type mcpCmd struct{ clientFlags }

// Help is the long help of the command.
func (*mcpCmd) Help() string {
	return `For programs that start an MCP server and speak with it over its standard input and output. The tools act for the credential and reach
what belongs to it alone. In the turn of an agent, LANEWAY_MCP_URL and LANEWAY_MCP_TOKEN stand for the turn and are used.

Examples:

    laneway mcp
    LANEWAY_TOKEN=... laneway mcp --url https://gateway.example.org`
}

// Run forwards requests until standard input ends.
func (c *mcpCmd) Run(ctx context.Context, env *environment) error {
	endpoint, token, err := c.endpoint(ctx, env)
	if err != nil {
		return err
	}
	gateway := mcp.NewClient(&mcp.Implementation{Name: "laneway", Version: env.version.Version}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	session, err := gateway.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: endpoint, DisableStandaloneSSE: true, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: bearerTransport{token: token, next: http.DefaultTransport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil)
	if err != nil {
		return fmt.Errorf("the gateway at %s does not serve its tools to this credential: %w", endpoint, err)
	}
	defer func() { _ = session.Close() }()
	server, err := mirror(ctx, session)
	if err != nil {
		return err
	}
	err = server.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(env.stdin), Writer: unclosed{env.stdout}})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// endpoint returns the address of the tools and the token for them.
func (c *mcpCmd) endpoint(ctx context.Context, env *environment) (string, secret.Secret, error) {
	address, inTurn := env.lookupEnv("LANEWAY_MCP_URL")
	if token, ok := env.lookupEnv("LANEWAY_MCP_TOKEN"); ok && inTurn && len(c.URL) == 0 && c.Token == "" {
		return address, secret.New(token), nil
	}
	t, err := c.serving(ctx, env)
	if err != nil {
		return "", secret.Secret{}, err
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", secret.Secret{}, usageError("the address of the gateway cannot be read")
	}
	u.Scheme = map[string]string{"ws": "http", "wss": "https"}[u.Scheme]
	if u.Scheme == "http" && !t.Plaintext && !loopbackURL(t.URL) {
		return "", secret.Secret{}, usageError("the credential would cross the network in clear; use https:// or --allow-plaintext")
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/ws") + "/mcp"
	return u.String(), t.Token, nil
}

// mirror returns a server that declares what the gateway declares, has the tools of a session and forwards their calls.
func mirror(ctx context.Context, session *mcp.ClientSession) (*mcp.Server, error) {
	server := gatewaymcp.NewServer(session.InitializeResult().ServerInfo, nil)
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("reading the tools of the gateway: %w", err)
		}
		server.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: req.Params.Name, Arguments: req.Params.Arguments})
			if err != nil {
				return nil, fmt.Errorf("the gateway did not make the call: %w", err)
			}
			return result, nil
		})
	}
	return server, nil
}

// bearerTransport adds the credential to each request.
type bearerTransport struct {
	token secret.Secret
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	return b.next.RoundTrip(r) //nolint:wrapcheck // a transport returns the errors of the next one
}

// unclosed is a writer that stays open until the process ends.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }
