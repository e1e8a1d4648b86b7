package main

import (
	"context"
	"time"

	"laneway/internal/client"
)

// dialGateway opens a connection with the module's own client.
func dialGateway(ctx context.Context, t target) (gatewayConn, error) { return dialWithin(0)(ctx, t) }

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
