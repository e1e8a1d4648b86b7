// Package diskspace watches that the disks on which this process writes keep some free space.
//
// A [Floor] is asked before a new message is accepted. Below the floor new messages are refused, so that what was accepted before has the
// space that its turns and answers need. It starts no goroutine: a check reads the disks when the last reading is a second old, and
// checks at the same time get the last answer. A disk whose free space cannot be read counts as having enough: the store reports real faults.
package diskspace
