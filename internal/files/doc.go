// Package files keeps the files of conversations: it takes over what agents make for people, and removes what nobody needs any more.
//
// # The directory
//
// All of it lies below one directory, opened as an [os.Root], which nothing that comes from outside can leave:
//
//	telegram-<bot>/…   what people sent, written by the channel
//	outgoing/<uuid>    what agents made, taken over by [Turn.Take]
//	turns/<uuid>/      where the agent of a running turn leaves files; the agent gets its path
//
// Names are made here. What an agent calls a file is shown to people and is never a path.
//
// # Taking over
//
// An agent's program may write anything into its directory. Taken are regular files that it names by a path below that directory, or that lie in it;
// a way out (`..`, an absolute path), a link anywhere on the way, a device, a pipe or a directory is refused, and so is what is over a bound
// ([MaxFiles], [MaxFile], [MaxTotal]). Each refusal is a few words for the person. A file is taken by moving it to its own name and looking at
// it again there, so that what was checked is what is kept. It is on the disk, with its name, when Take returns: only then may
// a row of the outbox name it.
//
// # Removing
//
// A turn removes its directory when it ends. [Dir.Sweep] removes what crashed turns left, and files that are old and that nothing
// unfinished names. Files have no index: what exists is what is in the directory, and what is needed is what rows name.
//
// It starts no goroutine. Several processes may share the directory; it then has to be one for them all, because a file is sent by
// whichever of them has the outgoing message.
package files
