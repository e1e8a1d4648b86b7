// Package process starts programs. It is the only package of the binary that does, so that the limits on what a started program can
// reach and keep are in one place.
//
// # Starting
//
// [Start] takes a [Spec]: the program and its arguments as they are, without a shell in between, the whole environment, the working
// directory, and what goes to standard input. The environment of the gateway is never inherited: [Environment] makes a clean one of PATH,
// HOME, TZ, the locale, proxies and certificates, and the configured variables. A program without a slash is looked for in the PATH of that environment.
//
// # Running
//
// The program runs in a process group of its own. With [Spec.Talks] the caller writes to its standard input while it runs. [Process.Read] passes standard output to a function of the caller, which decides how
// much of it is wanted: its first error ends the program. Standard error goes to the log, a bounded number of lines per second; its last lines
// are in [Exit]. Configured values are taken out of it, because they may be keys ([Hider]).
//
// # Ending
//
// When the context of Start is over, the group gets SIGTERM and, after the grace time, SIGKILL. When the program ends by itself, what it
// left in its group is killed, and output that such processes still hold open is read for 100 ms at most. A process that has left the
// group (setsid, double fork) is killed with it where there is a [Reaper]; stronger walls (containers, users) are for the operator.
//
// # Goroutines
//
// Start makes two to four goroutines: one waits for the program, one ends the group, one writes standard input if there is some, one
// reads standard error. All of them end in [Process.Wait], which the caller has to call once after Read.
//
// # Crash
//
// When the gateway is killed, its programs are not: they lose their pipes and end when they write. The turn runs again with the same
// run id, which the caller gives the program in its environment.
//
// The package needs a Unix. It knows nothing of turns, agents or the store.
package process
