// Package client is the Go client of a laneway gateway: the command line uses it.
//
// A [Conn] is one authenticated WebSocket connection. [Conn.Call] sends a request and waits for its answer; calls may be concurrent.
// [Conn.Events] delivers the events of the gateway. The package does not reconnect: the gateway replays no events, so the caller dials
// again and reads the state that it needs.
//
// # Promises
//
//   - The token is sent only after the gateway's challenge was read, and never over ws:// to another machine unless [Options.AllowPlain] is
//     set. Certificates are verified. No proxy from the environment is used.
//   - Every error says what to do. [ErrNoGateway], [ErrUnauthorized], [ErrVersion], [ErrPlain], [ErrUntrusted] and [ErrClosed] can be
//     distinguished with errors.Is; a refusal of the gateway is an [*Error].
//   - A connection without a frame for two ticks is closed, so a call cannot hang on a dead connection.
//   - Events that the caller does not read in time are dropped; the next delivered event has Gap set. Calls never wait for events.
//
// # Goroutines
//
// Dial starts one goroutine, which ends with the connection. Close waits for it.
//
//	conn, err := client.Dial(ctx, client.Options{URL: "ws://127.0.0.1:18790", Token: token})
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//	var health struct{ OK bool }
//	err = conn.Call(ctx, "health", nil, &health)
package client
