package app

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
)

// lanesOf returns the configured lanes, sorted by name.
func lanesOf(cfg config.Config) []scheduler.Lane {
	limits := cfg.Lanes.Map()
	lanes := make([]scheduler.Lane, 0, len(limits))
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		lanes = append(lanes, scheduler.Lane{Name: name, Limit: limits[name]})
	}
	return lanes
}

// queueOf maps the configured queue of an agent on a channel to the rules of its sessions.
func queueOf(cfg config.Config) func(agent, channel, kind string) dispatch.QueueRules {
	return func(agent, channel, kind string) dispatch.QueueRules {
		q := cfg.QueueFor(agent, channel)
		s := dispatch.QueueRules{Cap: q.Cap, Drop: chat.DropPolicy(q.Drop), Settings: scheduler.Settings{
			Mode: scheduler.QueueMode(q.Mode), Debounce: millis(q.DebounceMs), DebounceMax: millis(q.DebounceMaxMs),
			BatchMessages: q.DebounceMaxMessages, BatchBytes: q.DebounceMaxBytes, MaxConcurrent: q.MaxConcurrent,
		}}
		if q.DebounceMs == 0 {
			s.Debounce, s.DebounceMax = -1, 0 // no debounce
		}
		if kind == "group" {
			s.MaxConcurrent = q.GroupMaxConcurrent
		}
		return s
	}
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// replicaName returns the name of this process in lists: the setting cluster.node_id, or a name derived from the host name.
func replicaName(set string) string {
	if set != "" {
		return set
	}
	host, err := os.Hostname()
	if err != nil {
		host = "laneway"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
