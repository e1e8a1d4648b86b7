// Package files stores the files of conversations: it takes over the files that agents make for people, keeps those that clients upload, and removes
// files that are no longer needed.
//
// # The directory
//
// All files are below one directory, opened as an [os.Root], which no external path can leave:
//
//	telegram-<bot>/…   what people sent, written by the channel
//	uploads/<owner>/   what clients sent in with [Dir.Save]: each file, and beside it a small one with its name, its kind and its size
//	outgoing/<uuid>    what agents made, taken over by [Turn.Take]
//	turns/<uuid>/      where the agent of a running turn leaves files; the agent knows its path
//
// This package makes the names. The name that an agent gives to a file is shown to people and is never a path.
//
// # Taking over
//
// An agent's program may write anything into its directory. A regular file is taken when the agent names it by a path below that directory, or when
// it is in the directory. A path that leaves the directory (`..`, an absolute path), a link in any part of the path, a device, a pipe or a directory
// is refused, and so is a file beyond a bound ([MaxFiles], [MaxFile], [MaxTotal]). Each refusal is a phrase for the person.
//
// A file is first renamed to its final name and checked again there, so the checked file is the stored one: the agent does not
// know the final name. The file and its name are on the disk when Take returns. Only then may a row of the outbox name it.
//
// # Uploads
//
// A file is complete and on the disk before [Dir.Save] returns its id. The id names the directory of its owner by a digest, so finding a file needs
// no index and principals do not share directories. The content is written first, its description second: a file without a description does not exist
// for clients. [Dir.Use] renews the age of a file when a message is going to name it, and [Dir.Sweep] checks the age again before it removes a file.
//
// # Removing
//
// A turn removes its directory when it ends. [Dir.Sweep] removes what crashed turns left, and old files that no unfinished row names. There is no
// index: the directory lists the files that exist, and the rows list those that are needed.
//
// # Crash points
//
// Before Take returns: the file is in the turn's directory or has no row, and Sweep removes it. After that: the row of the outbox names the file.
// Before Save returns: no id exists, and Sweep removes what was written.
//
// # What it does not do
//
// It starts no goroutine and holds no lock. Several processes may share the directory. Several replicas must share it: a file is sent by
// the process that has claimed the outgoing message.
package files
