// Package files stores the files of conversations: it takes over the files that agents make for people, keeps those that clients send in, and removes files that are not
// needed any more.
//
// # The directory
//
// All of it is below one directory, opened as an [os.Root], which no path from outside can leave:
//
//	telegram-<bot>/…   what people sent, written by the channel
//	uploads/<owner>/   what clients sent in with [Dir.Save]: each file, and beside it a small one with its name, its kind and its size
//	outgoing/<uuid>    what agents made, taken over by [Turn.Take]
//	turns/<uuid>/      where the agent of a running turn leaves files; the agent gets its path
//
// This package makes the names. The name that an agent gives to a file is shown to people and is never a path.
//
// # Taking over
//
// An agent's program may write anything into its directory. A file is taken when it is a regular file, and the agent names it by a path below that
// directory or it lies there. A way out (`..`, an absolute path), a link in any part of the path, a device, a pipe or a directory is refused, and so is a file beyond
// a bound ([MaxFiles], [MaxFile], [MaxTotal]). Each refusal is a phrase for the person.
//
// A file is renamed to its own name first and checked again there, so the checked file is the stored one: the agent does not know
// that name. The file and its name are on the disk when Take returns. Only then may a row of the outbox name it.
//
// # What clients send in
//
// A file is whole and on the disk before [Dir.Save] returns its id. The id names the directory of its owner by a digest, so looking for a file needs no index and no
// principal meets the files of another by accident. The content is written first, what describes it second: a file without the second does not exist for
// clients. [Dir.Use] makes a file young again when a message is going to name it, and [Dir.Sweep] looks at the age once more before it removes a file.
//
// # Removing
//
// A turn removes its directory when it ends. [Dir.Sweep] removes what crashed turns left, and old files that no unfinished row names. There is no
// index: the directory is the list of what exists, and the rows are the list of what is needed.
//
// # Crash points
//
// Before Take returns: the file is in the turn's directory or has no row, and Sweep removes it. After that: the row of the outbox names the file. Before
// Save returns: there is no id, and Sweep removes what was written.
//
// # What it does not do
//
// It starts no goroutine and holds no lock. Several processes may share the directory. With several replicas they must: a file is sent by
// the process that has claimed the outgoing message.
package files
