// Package mcp serves the tools of the gateway at `/mcp`, as an MCP server over Streamable HTTP.
//
// # Who calls
//
// The token of a running turn ([Turns]) gives the tools of this turn with its rights; it is in the environment of the turn's program. A credential of the
// gateway with the scope operator.write gives the tools for its own principal, outside of any turn. Everything else is answered 401.
//
// # How it is served
//
// Each request stands alone: there is no session of the protocol, no stream that the server opens, and nothing is kept between two requests. So a
// client may change the process behind a load balancer, and an ended client leaves nothing behind. The tools are the only thing that the server has: no resources, no
// prompts, no questions to the client.
//
// # Crash points
//
// A call of a turn is recorded by its tools before it runs and when it has a result. A client that gets no answer may repeat the call of a turn: what it does is done
// once for each time that the program asks for it, see package dispatch. Calls of a credential have a key of their own each.
//
// # Bounds and goroutines
//
// Bodies have at most [maxBody] bytes. The package starts no goroutine of its own; those of the SDK end with their request, of which [Handler] waits for the end.
package mcp
