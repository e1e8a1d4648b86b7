// Package diskspace checks that the disks to which this process writes have enough free space.
//
// The gateway checks a [Floor] before it accepts a new message. Below the floor new messages are refused, so that accepted messages have the
// space that their turns and answers need. It starts no goroutine: a check reads the disks if the last reading is a second old, and
// concurrent checks return the last result. A disk whose free space cannot be read counts as having enough: the store reports real faults.
package diskspace
