//go:build race

package teste2e

// raceFlag builds the gateway as the tests are built.
func raceFlag() []string { return []string{"-race"} }
