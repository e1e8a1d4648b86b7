package scheduler

import (
	"fmt"
	"strings"
)

// QueueMode says what a message does that arrives while a turn of its session runs.
type QueueMode string

// The modes. The empty mode is ModeQueue.
const (
	// ModeQueue: it waits its turn, first in first out.
	ModeQueue QueueMode = "queue"
	// ModeFollowup: the same as ModeQueue, under the name that others use.
	ModeFollowup QueueMode = "followup"
	// ModeInterrupt: running turns are cancelled, waiting messages end superseded, and the new message starts when
	// the cancelled turns have really returned.
	ModeInterrupt QueueMode = "interrupt"
	// ModeCollect: all waiting messages become one turn when the running one ends.
	ModeCollect QueueMode = "collect"
	// ModeSteer: it is given to a running turn that takes input; else it waits as in ModeQueue.
	ModeSteer QueueMode = "steer"
)

// QueueModes lists every mode.
func QueueModes() []QueueMode {
	return []QueueMode{ModeQueue, ModeFollowup, ModeInterrupt, ModeCollect, ModeSteer}
}

// ParseQueueMode reads a mode as a person writes it: case and outer spaces do not matter, and an empty text is
// ModeQueue. An unknown name is an error that matches ErrInvalid and lists the known ones.
func ParseQueueMode(text string) (QueueMode, error) {
	return parseName(text, "queue mode", ModeQueue, QueueModes())
}

// DropPolicy says who loses when Cap messages wait and one more comes.
type DropPolicy string

// The policies. The empty policy is DropOld.
const (
	// DropOld: the oldest waiting message is dropped (ErrQueueDropped) and the new one waits.
	DropOld DropPolicy = "old"
	// DropNew: the new message is refused (ErrQueueFull).
	DropNew DropPolicy = "new"
)

// DropPolicies lists every policy.
func DropPolicies() []DropPolicy { return []DropPolicy{DropOld, DropNew} }

// ParseDropPolicy reads a policy as a person writes it: case and outer spaces do not matter, and an empty text is
// DropOld. An unknown name is an error that matches ErrInvalid and lists the known ones.
func ParseDropPolicy(text string) (DropPolicy, error) {
	return parseName(text, "drop policy", DropOld, DropPolicies())
}

// parseName finds the name in the list of known ones.
func parseName[T ~string](text, kind string, unset T, known []T) (T, error) {
	name := T(strings.ToLower(strings.TrimSpace(text)))
	if name == "" {
		return unset, nil
	}
	for _, k := range known {
		if k == name {
			return k, nil
		}
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	return "", fmt.Errorf("%w %s %.40q: use one of %s", ErrInvalid, kind, text, strings.Join(names, ", "))
}
