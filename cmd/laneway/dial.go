package main

import (
	"context"

	"laneway/internal/client"
)

// dialGateway opens a connection with the module's own client.
func dialGateway(ctx context.Context, t target) (gatewayConn, error) {
	conn, err := client.Dial(ctx, client.Options{
		URL: t.URL, Token: t.Token.Reveal(), Version: programVersion().Version, AllowPlain: t.Plaintext,
	})
	if err != nil {
		return nil, err // not conn: a nil *Conn in an interface is not nil
	}
	return conn, nil
}
