//go:build race

package teste2e

// raceFlag builds the gateway as the tests are built.
func raceFlag() []string { return []string{"-race"} }

// slowness is by how much bounds in time are wider than promised: the race detector slows the gateway down, and other tests share the machine.
const slowness = 10
