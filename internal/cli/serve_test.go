package cli

import (
	"context"
	"testing"
)

// neverReady is a process that ends before it is ready.
type neverReady struct{}

func (neverReady) Serve(context.Context, serveInput) error { return nil }

// Whoever types laneway serve reads first what to type next, while the gateway still starts. A
// journal and a script do not.
func TestServeSaysFirstWhereToGo(t *testing.T) {
	t.Parallel()
	const first = "laneway 0.0.0-dev starts; then write to it from a second terminal: laneway chat"
	for name, c := range map[string]struct {
		terminal bool
		args     []string
		want     string
	}{
		"on a terminal":                {terminal: true, want: first + "\n"},
		"with a configuration":         {terminal: true, args: []string{"--config", "/dev/null"}, want: first + " --config /dev/null\n"},
		"at an address of its own":     {terminal: true, args: []string{"--listen", "127.0.0.1:1"}, want: "laneway 0.0.0-dev starts\n"},
		"quietly":                      {terminal: true, args: []string{"--no-notes"}},
		"into the journal or a script": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench("", "LANEWAY_DATA", t.TempDir())
			b.env.service, b.env.toTerminal = neverReady{}, c.terminal
			b.run(t, 0, append([]string{"serve"}, c.args...)...)
			if got := b.stdout.String(); got != c.want {
				t.Errorf("printed %q, want %q", got, c.want)
			}
		})
	}
}
