//go:build !race

package teste2e

// raceFlag builds the gateway as the tests are built.
func raceFlag() []string { return nil }

// slowness is by how much bounds in time are wider than promised.
const slowness = 1
