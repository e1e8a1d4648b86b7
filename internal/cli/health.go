package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

type healthCmd struct {
	URL     string        `help:"Address of the gateway; default LANEWAY_URL, else that of the configuration." placeholder:"URL"`
	Config  string        `help:"Configuration file of the gateway on this host; default as for laneway serve." placeholder:"FILE" type:"path"`
	Ready   bool          `help:"Ask whether it is ready for work, with its database, instead of whether it is alive."`
	Timeout time.Duration `help:"How long to wait for the answer." default:"3s"`
	JSON    bool          `help:"Print the answer as JSON."`
}

// Help is the long help of the command.
func (*healthCmd) Help() string {
	return `Needs no credential. Exit status 0 means well, 1 means not well or not there.

Examples:

    laneway health
    laneway health --ready --url http://127.0.0.1:18790`
}

// Run requests /healthz or /readyz.
func (c *healthCmd) Run(ctx context.Context, env *environment) error {
	if c.Timeout <= 0 {
		return usageError("--timeout must be longer than 0")
	}
	addresses, err := clientFlags{URL: oneURL(c.URL), Config: c.Config}.addresses(env)
	if err != nil {
		return err
	}
	base := addresses[0]
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, status, err := probe(ctx, base, c.path())
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(env.stdout, json.RawMessage(body)); err != nil {
			return err
		}
	}
	switch {
	case status == http.StatusOK && c.JSON:
		return nil
	case status == http.StatusOK:
		_, err := fmt.Fprintln(env.stdout, "ok")
		return err
	case c.JSON:
		return errQuiet
	default:
		return fmt.Errorf("the gateway is not well: %s", oneLine(string(body)))
	}
}

func (c *healthCmd) path() string {
	if c.Ready {
		return "/readyz"
	}
	return "/healthz"
}

// maxProbe limits the response in bytes: the server may not be a gateway.
const maxProbe = 64 << 10

// probe requests a path of the gateway that needs no credential. Its error is a sentence without the address of a proxy or a resolver.
func probe(ctx context.Context, base, path string) (body []byte, status int, err error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, 0, usageError("the address of the gateway cannot be read")
	}
	u.Scheme = map[string]string{"ws": "http", "wss": "https"}[u.Scheme]
	u.Path = path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, 0, usageError("the address of the gateway cannot be read")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, unreachable(u.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxProbe))
	if err != nil {
		return nil, 0, unreachable(u.Host, err)
	}
	if !json.Valid(body) {
		return nil, 0, fmt.Errorf("what listens on %s is no laneway gateway", u.Host)
	}
	return body, response.StatusCode, nil
}

func unreachable(host string, err error) error {
	var network net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no program listens on %s; start a gateway with laneway serve, or name another with --url", host)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("the gateway on %s did not answer in time", host)
	default:
		return fmt.Errorf("the gateway on %s cannot be reached: %w", host, rootCause(err))
	}
}

// rootCause returns the innermost error: the outer ones of net/http repeat the address.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
