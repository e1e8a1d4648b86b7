// Package testcompat lets foreign clients, unmodified, talk to the real binary, on SQLite and on Postgres.
//
// Its tests carry the build tag compat, because they fetch npm packages and take minutes; `make compat` runs them:
//
//   - the OpenClaw command line in two versions, and its terminal interface in a tmux of its own;
//   - the published JSON schema of the protocol, against every frame of the standard view;
//   - three clients that share no code with the gateway: npm's ws, Python's standard library, a page in Chromium;
//   - the refusals of the border, with exact codes, from outside;
//   - nginx before the gateway;
//   - coding agents from npm behind the gateway, with a scripted model.
//
// The clients and the pinned versions are in the directory compat. What a machine lacks (the npm registry, tmux, Chromium, Python, nginx)
// fails the test with a sentence that says so; nothing is left out in silence. Cases of methods that the gateway does not list in
// `hello-ok` are reported as skipped by name.
//
// Every test ends its gateway, its terminals and its clients.
package testcompat
