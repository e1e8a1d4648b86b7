//go:build !race

package teste2e

// raceFlag returns the build flags of the gateway, which match those of the tests.
func raceFlag() []string { return nil }
