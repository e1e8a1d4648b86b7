package config

// Queue are the rules for waiting messages of one session. A zero field does not mean its default: [Default] fills in the defaults.
type Queue struct {
	// Mode is queue, followup, interrupt, collect or steer. Default queue.
	Mode string `yaml:"mode"`
	// Cap is how many messages may wait, 1 to 10000. Default 10. The running turn does not count.
	Cap int `yaml:"cap"`
	// Drop selects the message to remove when the queue is full: old or new. Default old.
	Drop string `yaml:"drop"`
	// DebounceMs is how long no message must arrive before messages become a turn, 0 to 60000 milliseconds. Default 800. 0 = no debounce.
	DebounceMs int `yaml:"debounce_ms"`
	// DebounceMaxMs is the longest time that a first message is held in milliseconds, at least DebounceMs. Default 0 = three times
	// DebounceMs.
	DebounceMaxMs int `yaml:"debounce_max_ms"`
	// DebounceMaxMessages and DebounceMaxBytes limit a batch. Defaults 12 and 50000.
	DebounceMaxMessages int `yaml:"debounce_max_messages"`
	DebounceMaxBytes    int `yaml:"debounce_max_bytes"`
	// MaxConcurrent is how many turns of one session run at once, 1 to 1000. Default 1.
	MaxConcurrent int `yaml:"max_concurrent"`
	// GroupMaxConcurrent is the same for sessions of groups. Default 3.
	GroupMaxConcurrent int `yaml:"group_max_concurrent"`
	// ThrottlePercent of the context window: above it, a session runs one turn at a time, 1 to 100. Default 60.
	ThrottlePercent int `yaml:"throttle_percent"`
}

// QueueOverride changes some settings of [Queue] for one agent or one channel. A missing field keeps the outer value.
type QueueOverride struct {
	Mode                *string `yaml:"mode"`
	Cap                 *int    `yaml:"cap"`
	Drop                *string `yaml:"drop"`
	DebounceMs          *int    `yaml:"debounce_ms"`
	DebounceMaxMs       *int    `yaml:"debounce_max_ms"`
	DebounceMaxMessages *int    `yaml:"debounce_max_messages"`
	DebounceMaxBytes    *int    `yaml:"debounce_max_bytes"`
	MaxConcurrent       *int    `yaml:"max_concurrent"`
	GroupMaxConcurrent  *int    `yaml:"group_max_concurrent"`
	ThrottlePercent     *int    `yaml:"throttle_percent"`
}

// Apply returns q with the changes of o. In the result, DebounceMaxMs is filled in.
func (o QueueOverride) Apply(q Queue) Queue {
	q = o.apply(q)
	if q.DebounceMaxMs == 0 {
		q.DebounceMaxMs = 3 * q.DebounceMs
	}
	return q
}

func (o QueueOverride) apply(q Queue) Queue {
	if o.DebounceMs != nil && o.DebounceMaxMs == nil {
		q.DebounceMaxMs = 0 // it follows from the new DebounceMs
	}
	set(&q.Mode, o.Mode)
	set(&q.Cap, o.Cap)
	set(&q.Drop, o.Drop)
	set(&q.DebounceMs, o.DebounceMs)
	set(&q.DebounceMaxMs, o.DebounceMaxMs)
	set(&q.DebounceMaxMessages, o.DebounceMaxMessages)
	set(&q.DebounceMaxBytes, o.DebounceMaxBytes)
	set(&q.MaxConcurrent, o.MaxConcurrent)
	set(&q.GroupMaxConcurrent, o.GroupMaxConcurrent)
	set(&q.ThrottlePercent, o.ThrottlePercent)
	return q
}

func set[T any](target *T, value *T) {
	if value != nil {
		*target = *value
	}
}

// QueueFor returns the queue settings for a session of this agent on this channel: the global settings, overridden by the channel's and
// then by the agent's, because an agent is more specific. An agent or channel that is not configured changes nothing.
func (c Config) QueueFor(agent, channel string) Queue {
	q := c.Channels.queueOf(channel).apply(c.Queue)
	return c.Agents[agent].Queue.Apply(q)
}

// maxDebounceMs is a minute: a person who pauses longer has stopped typing.
const maxDebounceMs = 60_000

func (q Queue) validate(a at) {
	a.oneOf("mode", q.Mode, "queue", "followup", "interrupt", "collect", "steer")
	a.between("cap", q.Cap, 1, 10_000)
	a.oneOf("drop", q.Drop, "old", "new")
	a.between("debounce_ms", q.DebounceMs, 0, maxDebounceMs)
	a.between("debounce_max_ms", q.DebounceMaxMs, 0, 10*maxDebounceMs)
	if q.DebounceMaxMs != 0 && q.DebounceMaxMs < q.DebounceMs {
		a.key("debounce_max_ms").addf("must not be shorter than debounce_ms (%d), is %d", q.DebounceMs, q.DebounceMaxMs)
	}
	a.between("debounce_max_messages", q.DebounceMaxMessages, 1, 1_000)
	a.between("debounce_max_bytes", q.DebounceMaxBytes, 1, 262_144)
	a.between("max_concurrent", q.MaxConcurrent, 1, 1_000)
	a.between("group_max_concurrent", q.GroupMaxConcurrent, 1, 1_000)
	a.between("throttle_percent", q.ThrottlePercent, 1, 100)
}
