// Package mcp serves the tools of the gateway at `/mcp`, as an MCP server over Streamable HTTP.
//
// # Callers
//
// The token of a running turn ([Turns]) permits the tools of this turn with its permissions; it is in the environment of the turn's
// program. A credential of the gateway with the scope operator.write permits the tools for its own principal, outside of any turn. Any
// other request is answered with 401.
//
// # Transport
//
// Each request is independent: there is no session of the protocol, no stream that the server opens, and no state between two requests. So
// a client may reach another process through a load balancer, and a client that ends leaves nothing behind. The server has only tools: no
// resources, no prompts, no requests to the client.
//
// # Crash points
//
// A call of a turn is recorded by its tools before it runs and when it has a result. A client without an answer may repeat the call of a
// turn: its effect happens once for each time that the program requests it, see package dispatch. Calls of a credential have separate keys.
//
// # Limits and goroutines
//
// Bodies have at most [maxBody] bytes. The package itself starts no goroutine; those of the SDK end with their request, and [Handler] waits
// for them.
package mcp
