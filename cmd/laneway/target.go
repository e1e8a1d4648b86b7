package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"laneway/internal/client"
	"laneway/internal/config"
	"laneway/internal/secret"
)

// gatewayConn is one authenticated connection to a gateway; *client.Conn is one. Errors of a lost connection wrap client.ErrClosed.
type gatewayConn interface {
	// Call sends a request and waits for its answer. A refusal is an error whose sentence is fit for a person.
	Call(ctx context.Context, method string, params, result any) error
	// Events are the events of the gateway, in order. The channel is closed when the connection has ended.
	Events() <-chan client.Event
	// Close ends the connection and waits for what it started.
	Close() error
}

// target is a gateway and the credential for it.
type target struct {
	URL   string
	Token secret.Secret
	// Plaintext allows ws:// to other hosts.
	Plaintext bool
}

// dialer opens a connection and gives up when ctx is over.
type dialer func(ctx context.Context, t target) (gatewayConn, error)

// clientFlags locate the gateway. They are the same for every client command.
type clientFlags struct {
	URL            string `help:"Address of the gateway; default LANEWAY_URL, else ws://127.0.0.1:18790." placeholder:"URL"`
	Token          string `help:"Credential; better in LANEWAY_TOKEN, because arguments are visible to all users." placeholder:"TOKEN"`
	Data           string `help:"Data directory whose token file is used for a gateway on this machine." placeholder:"DIR" type:"path"`
	AllowPlaintext bool   `help:"Send the credential over ws:// to another host."`
}

// target finds the gateway and the credential: flags, variables, then the token file of the local data directory.
func (f clientFlags) target(env *environment) (target, error) {
	address, err := f.address(env)
	if err != nil {
		return target{}, err
	}
	t := target{URL: address, Plaintext: f.AllowPlaintext}
	t.Token, err = f.credential(env, address)
	return t, err
}

func (f clientFlags) address(env *environment) (string, error) {
	raw := f.URL
	if raw == "" {
		raw, _ = env.lookupEnv("LANEWAY_URL")
	}
	if raw == "" {
		return "ws://" + localAddress(env), nil
	}
	if !strings.Contains(raw, "://") {
		raw = "ws://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", usageError("the address of the gateway must look like ws://127.0.0.1:18790 or wss://host")
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

// localAddress is where a gateway of this machine listens: the port of LANEWAY_LISTEN where that is set, as in a container.
func localAddress(env *environment) string {
	listen, _ := env.lookupEnv("LANEWAY_LISTEN")
	first, _, _ := strings.Cut(listen, ",")
	host, port, err := net.SplitHostPort(strings.TrimSpace(first))
	if err != nil || port == "" || port == "0" {
		return config.DefaultListen
	}
	if config.Public(first) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// credential takes what was given, else the token file. That file is for this machine: its token is never sent elsewhere.
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
	return f.localToken(env)
}

func (f clientFlags) localToken(env *environment) (secret.Secret, error) {
	data := dataDirectory(f.Data, env)
	if data == "" {
		return secret.Secret{}, usageError("there is no home directory to look for the token in; use --token or --data DIR")
	}
	if _, err := os.Stat(config.TokenPath(data)); os.IsNotExist(err) {
		return secret.Secret{}, fmt.Errorf("there is no token in %s; start a gateway with laneway serve, or use --token or --data DIR", data)
	}
	return localSecret(config.ReadToken(data))
}

// localSecret turns the refusal of a file into an ordinary error: a client that cannot read its token is no gateway that must not start.
func localSecret(s secret.Secret, err error) (secret.Secret, error) {
	if err != nil {
		return secret.Secret{}, errors.New(err.Error())
	}
	return s, nil
}

func dataDirectory(flag string, env *environment) string {
	if flag != "" {
		return flag
	}
	if data, _ := env.lookupEnv("LANEWAY_DATA"); data != "" {
		return data
	}
	return config.DefaultData(env.lookupEnv)
}

func loopbackURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && !config.Public(net.JoinHostPort(u.Hostname(), "0"))
}

// connect opens the connection that the flags describe.
func (f clientFlags) connect(ctx context.Context, env *environment) (gatewayConn, error) {
	t, err := f.target(env)
	if err != nil {
		return nil, err
	}
	return env.dial(ctx, t)
}

// call opens a connection, makes one call, and closes it.
func (f clientFlags) call(ctx context.Context, env *environment, method string, params, result any) error {
	conn, err := f.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	return conn.Call(ctx, method, params, result)
}

// closeQuietly ends a connection whose answers have all arrived: an error of the close is of no use to the user.
func closeQuietly(conn gatewayConn) {
	_ = conn.Close()
}
