package main

import (
	"context"
	"io"
	"time"

	"laneway/internal/client"
)

// dialGateway opens a connection with the module's own client.
func dialGateway(ctx context.Context, t target) (gatewayConn, error) { return dialWithin(0)(ctx, t) }

// uploadFile sends a file to the gateway and returns its id.
func uploadFile(ctx context.Context, t target, name string, content io.Reader, size int64) (string, error) {
	sent, err := client.Upload(ctx, client.Options{URL: t.URL, Token: t.Token.Reveal(), AllowPlain: t.Plaintext}, name, content, size)
	return sent.ID, err
}

// dialWithin is dialGateway with a bound for dialling and the handshake; 0 = the client's.
func dialWithin(timeout time.Duration) func(context.Context, target) (gatewayConn, error) {
	return func(ctx context.Context, t target) (gatewayConn, error) {
		conn, err := client.Dial(ctx, client.Options{
			URL: t.URL, Token: t.Token.Reveal(), Version: programVersion().Version, AllowPlain: t.Plaintext, Timeout: timeout,
		})
		if err != nil {
			return nil, err // not conn: a nil *Conn in an interface is not nil
		}
		return conn, nil
	}
}
