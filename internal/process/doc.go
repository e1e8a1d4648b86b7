// Package process starts programs. It is the only package of the binary that does, so that the limits of started programs are in
// one place.
//
// # Starting
//
// [Start] takes a [Spec]: the program and its unchanged arguments, without a shell, the whole environment, the working directory, and what goes to
// standard input. The environment of the gateway is never inherited: [Environment] makes a clean one of PATH, HOME, TZ, the locale, proxies and
// certificates, and the configured variables. A program without a slash is resolved in the PATH of that environment.
//
// # Running
//
// The program runs in its own process group. With [Spec.Talks] the caller writes to its standard input while it runs. [Process.Read] passes standard
// output to a function of the caller, whose first error ends the program. Standard error goes to the log, a
// bounded number of lines per second; its last lines are in [Exit]. Configured values are removed from it, because they may be keys ([Hider]).
//
// # Ending
//
// When the context of Start is done, the group receives SIGTERM and, after the grace time, SIGKILL. When the program ends by itself, the
// processes that it left in its group are killed, and output that they hold open is read for at most 100 ms. A process that has left the
// group (setsid, double fork) is killed too where a [Reaper] exists; stronger isolation (containers, users) is left to the operator.
//
// # Goroutines
//
// Start makes two to four goroutines: one waits for the program, one ends the group, one writes standard input if there is any, one
// reads standard error. All of them end in [Process.Wait], which the caller must call once after Read.
//
// # Crash
//
// When the gateway is killed, its programs are not: they lose their pipes and end when they write. The turn runs again with the same
// run id, which the caller gives the program in its environment.
//
// The package does not depend on turns, agents or the store. Windows has no process groups, so there only the program itself is ended.
package process
