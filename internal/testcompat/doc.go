// Package testcompat runs unmodified third-party clients against the real binary, on SQLite and on
// PostgreSQL.
//
// Its tests carry the build tag compat, because they fetch npm packages and take minutes;
// `make compat` runs them:
//
//   - the OpenClaw command line in two versions, and its terminal interface in a separate tmux
//     server;
//   - the published JSON schema of the protocol, against every frame of the standard view;
//   - three clients that share no code with the gateway: npm's ws, Python's standard library, a
//     page in Chromium;
//   - nginx in front of the gateway;
//   - OpenAI's client and the library ai at /v1, and a fake of the model APIs that another project
//     makes;
//   - the conformance suite of MCP, for the gateway as a server and as a client;
//   - coding agents from npm behind the gateway, with a scripted model.
//
// The clients and the pinned versions are in the directory compat. If a machine lacks something
// (the npm registry, tmux, Chromium, Python, nginx), the test fails and names it. Cases of methods
// that the gateway does not list in `hello-ok` are skipped and reported by name.
//
// Every test ends its gateway, its terminals and its clients.
package testcompat
