package config

// Lanes are how many turns run at once in each lane, at least 1. Defaults 30, 50, 100, 30.
type Lanes struct {
	Main     int `yaml:"main"`
	Subagent int `yaml:"subagent"`
	Team     int `yaml:"team"`
	Cron     int `yaml:"cron"`
}

// Map returns the lanes by name.
func (l Lanes) Map() map[string]int {
	return map[string]int{"main": l.Main, "subagent": l.Subagent, "team": l.Team, "cron": l.Cron}
}

func (l Lanes) validate(a at) {
	limits := l.Map()
	for _, name := range sortedNames(limits) {
		if limits[name] < 1 {
			a.key(name).addf("must be a positive whole number, is %d", limits[name])
		}
	}
}
