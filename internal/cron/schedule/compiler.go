package schedule

import (
	"sync"
	"time"
)

// DefaultCompilerSize is the default number of schedules that a Compiler caches.
const DefaultCompilerSize = 4096

// Compiler is a caching [Compile]. Compiling takes some twenty microseconds and a zone may need a file, too much for a claim of hundreds of rows each second; a
// repeated call costs one lookup. It is safe for concurrent use and holds at most twice its size: when the newer half is full, the older one is dropped. Zones
// are never dropped, because their number is bounded by the zone database.
type Compiler struct {
	size  int
	rules zoneRules
	// release is that of the rules. Zones are cached, so the rules of a Compiler never change.
	release string

	mu    sync.Mutex
	newer map[Spec]Schedule
	older map[Spec]Schedule
	zones map[string]*time.Location
}

// NewCompiler creates a Compiler that caches size schedules. A size of 0 or less means [DefaultCompilerSize].
func NewCompiler(size int) *Compiler {
	if size <= 0 {
		size = DefaultCompilerSize
	}
	rules := currentZones()
	return &Compiler{size: size, rules: rules, release: rules.release(), newer: map[Spec]Schedule{}, zones: map[string]*time.Location{}}
}

// Release is that of the zone rules, see [ZoneRelease].
func (c *Compiler) Release() string { return c.release }

// Compile returns the result of the function [Compile]. Errors are not cached.
func (c *Compiler) Compile(s Spec) (Schedule, error) {
	if s.Kind != KindCron {
		return Compile(s)
	}
	if found, ok := c.find(s); ok {
		return found, nil
	}
	sched, err := compileWith(s, c.zone, func() string { return c.release })
	if err != nil {
		return Schedule{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(s, sched)
	return sched, nil
}

func (c *Compiler) find(s Spec) (Schedule, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.newer[s]; ok {
		return found, true
	}
	found, ok := c.older[s]
	if ok {
		c.keep(s, found)
	}
	return found, ok
}

// keep adds a schedule to the cache; the caller holds the mutex.
func (c *Compiler) keep(s Spec, sched Schedule) {
	if len(c.newer) >= c.size {
		c.newer, c.older = make(map[Spec]Schedule, c.size), c.newer
	}
	c.newer[s] = sched
}

func (c *Compiler) zone(name string) (*time.Location, error) {
	c.mu.Lock()
	loc, ok := c.zones[name]
	c.mu.Unlock()
	if ok {
		return loc, nil
	}
	loc, err := c.rules.load(name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones[name] = loc
	return loc, nil
}
