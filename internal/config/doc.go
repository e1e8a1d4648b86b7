// Package config turns a file, the environment and the command line into one checked [Config].
//
// # Ideas
//
// One path names a setting everywhere. The key `queue.cap` of the YAML file is the variable LANEWAY_QUEUE_CAP, and every error uses the
// same path. Nothing is declared twice: the yaml tag of a field is its path, and the name of the variable is derived from the path. A few
// settings also have short names, see [Aliases].
//
// Layers are applied in order: defaults, file, environment, flags. The source of each value is recorded, so that `laneway serve
// --print-config` can print it and a fault can name the line or the variable to change.
//
// All faults are reported at once. Unknown keys, wrong types, values out of range and contradictory settings are collected as
// [FaultsError]. The start is refused with exit code 78 and a sentence for each fault.
//
// Secrets have the type of package secret, which is never printed.
//
// # Two checks
//
// [Load] checks whether the settings are a valid configuration. [Preflight] checks whether it may start on this machine: the strength of
// tokens for the addresses, modes of files, TLS, the database's certificate. Preflight changes nothing. Only after every check has passed,
// [Plan.Prepare] writes the data directory (0700) and the token file (0600).
//
// # What it does not do
//
// It reads no environment itself: the caller provides a lookup function. It opens no socket and no database, resolves no name and starts no
// goroutine. It imports no other package of this module, so every package can use it.
//
// # Example
//
//	loaded, err := config.Load(config.Options{File: "laneway.yaml", LookupEnv: os.LookupEnv})
//	if err != nil {
//		return err // config.FaultsError: each fault with path, place and sentence
//	}
//	plan, err := config.Preflight(loaded)
//	if err != nil {
//		return err
//	}
//	creds, err := plan.Prepare()
package config
