package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"laneway/internal/client"
	"laneway/internal/config"
	gatewaymcp "laneway/internal/gateway/mcp"
	"laneway/internal/retry"
	"laneway/internal/secret"
)

// gatewayConn is one authenticated connection to a gateway; *client.Conn implements it. Errors of a
// lost connection wrap client.ErrClosed.
type gatewayConn interface {
	// Call sends a request and waits for its answer. A refusal is an error with a sentence for a
	// person.
	Call(ctx context.Context, method string, params, result any) error
	// Events returns the events of the gateway, in order. The channel is closed when the connection
	// has ended.
	Events() <-chan client.Event
	// Err returns why the connection has ended; nil while it is open.
	Err() error
	// Close ends the connection and waits for its goroutines.
	Close() error
}

// target is a gateway and the credential for it.
type target struct {
	URL   string
	Token secret.Secret
	// Plaintext allows ws:// to other hosts.
	Plaintext bool
}

// dialer opens a connection, at most until ctx is done.
type dialer func(ctx context.Context, t target) (gatewayConn, error)

// uploader uploads a file and returns the id by which a message names it.
type uploader func(ctx context.Context, t target, name string, content io.Reader, size int64) (id string, err error)

// clientFlags locate the gateway. They are the same for every client command.
type clientFlags struct {
	URL            []string `help:"Address of the gateway; default LANEWAY_URL, else from the configuration. Repeat it, or use commas, to try several replicas." placeholder:"URL"`
	Token          string   `help:"Token; better in LANEWAY_TOKEN, because every user can see arguments." placeholder:"TOKEN"`
	Config         string   `help:"Configuration file of the gateway on this host, for its address and token; default as for laneway serve." placeholder:"FILE" type:"path"`
	Data           string   `help:"Data directory of a gateway on this host, for its token." placeholder:"DIR" type:"path"`
	AllowPlaintext bool     `help:"Allow sending the token unencrypted (ws://) to another host."`

	ConnectWait time.Duration `help:"How long to wait for a gateway that is starting; 0 = don't wait." default:"5s" placeholder:"DURATION"`
}

// targets returns the gateways and the credential: from flags, variables, or the configuration of
// the gateway on this host.
func (f clientFlags) targets(env *environment) ([]target, error) {
	addresses, err := f.addresses(env)
	if err != nil {
		return nil, err
	}
	list := make([]target, len(addresses))
	for i, address := range addresses {
		list[i] = target{URL: address, Plaintext: f.AllowPlaintext}
		if list[i].Token, err = f.credential(env, address); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// oneURL returns the list for a flag with one address.
func oneURL(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// flagOr returns the value of a flag, or of a variable.
func flagOr(flag, variable string, env *environment) string {
	if flag != "" {
		return flag
	}
	value, _ := env.lookupEnv(variable)
	return value
}

// addresses returns those of the flags, of the variable, or of the gateway on this host.
func (f clientFlags) addresses(env *environment) ([]string, error) {
	raw := flagOr(strings.Join(f.URL, ","), "LANEWAY_URL", env)
	if raw == "" {
		loaded, err := f.local(env)
		if err != nil {
			return nil, err
		}
		return []string{"ws://" + localAddress(loaded.Config.Listen)}, nil
	}
	var list []string
	for one := range strings.SplitSeq(raw, ",") {
		address, err := socketAddress(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		list = append(list, address)
	}
	return list, nil
}

// socketAddress converts an address that a person wrote to a WebSocket URL.
func socketAddress(raw string) (string, error) {
	given := raw
	if !strings.Contains(raw, "://") {
		raw = "ws://" + raw
	}
	u, err := url.Parse(raw)
	word := raw != given && !strings.ContainsAny(given, ".:") && given != "localhost" // a misplaced word rather than a host
	if err != nil || u.Host == "" || word || !validPort(u.Port()) {
		return "", usageError(fmt.Sprintf("%q is not the address of a gateway; write ws://127.0.0.1:18790, wss://HOST or HOST:PORT", oneLine(secret.RawURL(given))))
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	case "ws", "wss":
	default:
		return "", usageError("the address of the gateway must begin with ws:// or wss://, not with " + u.Scheme + "://")
	}
	return u.String(), nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// local reads the configuration of the gateway on this host. A client needs only a part of it and
// ignores faults, which laneway doctor reports. A file at a default path that cannot be read is
// ignored, because it may belong to another user; a named one is an error.
func (f clientFlags) local(env *environment) (*config.Loaded, error) {
	o := config.Options{File: f.Config, LookupEnv: env.lookupEnv, SystemFile: env.systemConfig, BesideGateway: true}
	if f.Data != "" {
		o.Flags = []config.Setting{{Path: "data", Flag: "--data", Values: []string{f.Data}}}
	}
	loaded, err := config.Load(o)
	if loaded != nil {
		return loaded, nil
	}
	if named := flagOr(f.Config, "LANEWAY_CONFIG", env); named != "" {
		return nil, errors.New(err.Error())
	}
	o.File = os.DevNull
	if loaded, err = config.Load(o); loaded == nil {
		return nil, errors.New(err.Error())
	}
	return loaded, nil
}

// localAddress returns the address at which a client of this host reaches a gateway: the first
// loopback listener, or the port of the first one.
func localAddress(listen []string) string {
	for _, address := range listen {
		if _, port, err := net.SplitHostPort(address); err == nil && port != "0" && !config.Public(address) {
			return address
		}
	}
	for _, address := range listen {
		if _, port, err := net.SplitHostPort(address); err == nil && port != "" && port != "0" {
			return net.JoinHostPort("127.0.0.1", port)
		}
	}
	return config.DefaultListen
}

// credential returns the given credential, or the token of the configuration, or that of the data
// directory. The latter two are for this host: they are never sent to another one.
func (f clientFlags) credential(env *environment, address string) (secret.Secret, error) {
	if f.Token != "" {
		return secret.New(strings.TrimSpace(f.Token)), nil
	}
	if token, set := env.lookupEnv("LANEWAY_TOKEN"); set {
		if strings.TrimSpace(token) == "" {
			return secret.Secret{}, usageError("LANEWAY_TOKEN is set but empty; unset it or give a token")
		}
		return secret.New(strings.TrimSpace(token)), nil
	}
	if file, _ := env.lookupEnv("LANEWAY_TOKEN_FILE"); file != "" {
		return localSecret(config.ReadSecretFile(file))
	}
	if !loopbackURL(address) {
		return secret.Secret{}, usageError("a gateway on another host needs a credential; use --token or LANEWAY_TOKEN")
	}
	loaded, err := f.local(env)
	if err != nil {
		return secret.Secret{}, err
	}
	return localToken(loaded, f.Data != "")
}

// localToken returns the token of a configuration, or of its data directory. ofData: the data
// directory was named, so its token is used.
func localToken(loaded *config.Loaded, ofData bool) (secret.Secret, error) {
	cfg := loaded.Config
	switch {
	case ofData:
	case cfg.TokenFile != "":
		return localSecret(config.ReadSecretFile(cfg.TokenFile))
	case cfg.Token.IsSet():
		return cfg.Token, nil
	}
	if cfg.Data == "" {
		return secret.Secret{}, usageError("there is no home directory to look for the token in; use --token or --data DIR")
	}
	if _, err := os.Stat(config.TokenPath(cfg.Data)); os.IsNotExist(err) {
		return secret.Secret{}, &noTokenError{cfg.Data}
	}
	return localSecret(config.ReadSecretFile(config.TokenPath(cfg.Data)))
}

// noTokenError is the error for a data directory without a token: no gateway was ever started
// there, or the first one is about to create it.
type noTokenError struct{ data string }

func (e *noTokenError) Error() string {
	return "there is no token in " + e.data + "; start a gateway with laneway serve, or use --token, --config FILE or --data DIR"
}

// localSecret converts the refusal of a file to an ordinary error, because a client that cannot
// read its token is not a gateway that must not start.
func localSecret(s secret.Secret, err error) (secret.Secret, error) {
	if err != nil {
		return secret.Secret{}, errors.New(err.Error())
	}
	return s, nil
}

// dataDirectory returns the directory of a client's own files, such as the line history.
func dataDirectory(flag string, env *environment) string {
	if data := flagOr(flag, "LANEWAY_DATA", env); data != "" {
		return data
	}
	return config.DefaultData(env.lookupEnv)
}

func loopbackURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && !config.Public(net.JoinHostPort(u.Hostname(), "0"))
}

// connect opens the connection that the flags describe. It retries for ConnectWait when a gateway
// is starting or temporarily refuses connections, or when one of several does not listen. It also
// retries when the data directory has no token yet, because the first start of a gateway creates
// the token right before it listens.
func (f clientFlags) connect(ctx context.Context, env *environment) (gatewayConn, error) {
	conn, _, err := f.connectTo(ctx, env)
	return conn, err
}

// serving returns the gateway that connect finds, for requests in addition to a connection.
func (f clientFlags) serving(ctx context.Context, env *environment) (target, error) {
	conn, to, err := f.connectTo(ctx, env)
	if err != nil {
		return target{}, err
	}
	closeQuietly(conn)
	return to, nil
}

func (f clientFlags) connectTo(ctx context.Context, env *environment) (conn gatewayConn, to target, err error) {
	targets, err := f.targets(env)
	_, firstStart := errors.AsType[*noTokenError](err)
	if err != nil && !firstStart {
		return nil, target{}, err
	}
	until := time.Now().Add(f.ConnectWait)
	err = retry.Do(ctx, retry.Options{
		Policy: retry.Policy{Base: 100 * time.Millisecond, Max: 500 * time.Millisecond}, MaxWait: time.Second,
		Retryable: func(err error) bool {
			_, noToken := errors.AsType[*noTokenError](err)
			again := noToken || errors.Is(err, client.ErrUnavailable) || (firstStart || len(targets) > 1) && errors.Is(err, client.ErrNoGateway)
			return again && time.Now().Before(until)
		},
	}, func(ctx context.Context) (err error) {
		if len(targets) == 0 {
			if targets, err = f.targets(env); err != nil {
				return err
			}
		}
		conn, to, err = env.dialOne(ctx, targets)
		return err
	})
	if err != nil {
		return nil, target{}, err
	}
	return conn, to, nil
}

// dialOne connects to the first gateway that can serve. It stops at a refused credential, because
// the others would refuse it, too.
func (env *environment) dialOne(ctx context.Context, targets []target) (conn gatewayConn, to target, err error) {
	for _, to = range targets {
		conn, err = env.dial(ctx, to)
		if err == nil || !errors.Is(err, client.ErrNoGateway) && !errors.Is(err, client.ErrUnavailable) {
			return conn, to, err
		}
	}
	return nil, to, err
}

// gateway returns the connection that the flags describe. It is opened by the first call, which
// returns the error of a connection that fails, and closed when the command has ended.
func (f clientFlags) gateway(env *environment) gatewayConn {
	conn := &lazyConn{open: func(ctx context.Context) (gatewayConn, error) { return f.connect(ctx, env) }}
	env.opened = append(env.opened, conn)
	return conn
}

// lazyConn is a connection that its first call opens. One goroutine uses it.
type lazyConn struct {
	gatewayConn

	open func(ctx context.Context) (gatewayConn, error)
}

// Call implements gatewayConn.
func (l *lazyConn) Call(ctx context.Context, method string, params, result any) (err error) {
	if l.gatewayConn == nil {
		if l.gatewayConn, err = l.open(ctx); err != nil {
			l.gatewayConn = nil
			return err
		}
	}
	return l.gatewayConn.Call(ctx, method, params, result)
}

// Close implements gatewayConn.
func (l *lazyConn) Close() error {
	if l.gatewayConn == nil {
		return nil
	}
	return l.gatewayConn.Close()
}

// call makes one call on a connection of its own.
func (f clientFlags) call(ctx context.Context, env *environment, method string, params, result any) error {
	return f.gateway(env).Call(ctx, method, params, result)
}

// closeQuietly closes a connection whose answers have all arrived, so an error of the close does
// not matter to the user.
func closeQuietly(conn gatewayConn) {
	_ = conn.Close()
}

// uploadFile uploads a file to the gateway and returns its id.
func uploadFile(ctx context.Context, t target, name string, content io.Reader, size int64) (string, error) {
	sent, err := client.Upload(ctx, client.Options{URL: t.URL, Token: t.Token.Reveal(), AllowPlain: t.Plaintext}, name, content, size)
	return sent.ID, err
}

// downloadFile writes a file of the gateway.
func downloadFile(ctx context.Context, t target, id string, to func(name string) (io.Writer, error)) error {
	return client.Download(ctx, client.Options{URL: t.URL, Token: t.Token.Reveal(), AllowPlain: t.Plaintext}, id, to)
}

// dialAs returns a dialer that uses package client. version is the version of this program; timeout
// limits dialling and the handshake, 0 = the client's default.
func dialAs(version string, timeout time.Duration) dialer {
	return func(ctx context.Context, t target) (gatewayConn, error) {
		conn, err := client.Dial(ctx, client.Options{
			URL: t.URL, Token: t.Token.Reveal(), Version: version, AllowPlain: t.Plaintext, Timeout: timeout,
		})
		if err != nil {
			return nil, err // not conn: a nil *Conn in an interface is not nil
		}
		return conn, nil
	}
}

type mcpCmd struct{ clientFlags }

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

// mirror returns a server that declares what the gateway declares, has the tools of a session and
// forwards their calls.
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
	return b.next.RoundTrip(r) // a transport returns the errors of the next one
}

// unclosed is a writer that stays open until the process ends.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }
