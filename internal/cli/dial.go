package cli

import (
	"context"
	"io"
	"time"

	"laneway/internal/client"
)

// uploadFile uploads a file to the gateway and returns its id.
func uploadFile(ctx context.Context, t target, name string, content io.Reader, size int64) (string, error) {
	sent, err := client.Upload(ctx, client.Options{URL: t.URL, Token: t.Token.Reveal(), AllowPlain: t.Plaintext}, name, content, size)
	return sent.ID, err
}

// downloadFile writes a file of the gateway.
func downloadFile(ctx context.Context, t target, id string, to func(name string) (io.Writer, error)) error {
	return client.Download(ctx, client.Options{URL: t.URL, Token: t.Token.Reveal(), AllowPlain: t.Plaintext}, id, to)
}

// dialAs returns a dialer that uses package client. version is the version of this program; timeout limits dialling and the handshake, 0 =
// the client's default.
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
