// Package config turns a file, the environment and the command line into one checked [Config].
//
// # Ideas
//
// One path names a setting everywhere. The key `queue.cap` of the YAML file is the variable LANEWAY_QUEUE_CAP, and the same
// word stands in every complaint. Nothing is declared twice: the yaml tag of a field is its path, and the variable is made
// from the path. A few settings have short names besides; [Aliases] lists them.
//
// Layers lie on each other: defaults, then the file, then the environment, then flags. Each remembers where a value came
// from, so that `laneway serve --print-config` can print it and a fault can name the line or the variable to change.
//
// All faults are reported at once. Unknown keys, wrong types, values out of range and relations that cannot hold are
// collected as [FaultsError]; a start is refused with exit code 78 and every sentence that is needed to mend it.
//
// Secrets have the type of package secret, which is never printed.
//
// # Two gates
//
// [Load] answers the question "is this a configuration?". [Preflight] answers "may it start here?": addresses against the
// strength of tokens, modes of files, TLS in front, the database's certificate. Preflight only looks. [Plan.Prepare] is
// the first thing that writes: the data directory (0700) and the token file (0600), and only after every check has passed.
//
// # What it does not do
//
// It reads no environment by itself: the caller provides a lookup function. It opens no socket and no database, resolves no
// name, starts no goroutine, and imports no other package of this module, so that everything can take its values from it.
//
// # Example
//
//	loaded, err := config.Load(config.Options{File: "laneway.yaml", LookupEnv: os.LookupEnv})
//	if err != nil {
//		return err // config.FaultsError: each with path, place and sentence
//	}
//	plan, err := config.Preflight(loaded)
//	if err != nil {
//		return err
//	}
//	creds, err := plan.Prepare()
package config
