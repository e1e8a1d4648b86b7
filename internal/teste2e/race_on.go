//go:build race

package teste2e

// raceFlag returns the build flags of make test: with the race detector, but not in the engine of
// SQLite, which is C translated to Go and guards its memory itself; the detector makes it four
// times as slow.
func raceFlag() []string {
	return []string{"-race", "-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc=-race=false"}
}
