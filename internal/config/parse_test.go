package config

// parse parses a configuration from text alone, without environment, other files or flags. name is the name of the file in faults.
func parse(name string, text []byte) (Config, error) {
	l := &layers{sources: map[string]Source{}}
	cfg := Default()
	l.file(&cfg, name, text)
	loaded := &Loaded{sources: l.sources}
	loaded.agents(l, &cfg, func(string) (string, bool) { return "", false })
	fill(&cfg)
	l.addChecks(loaded.place(cfg.check()))
	return cfg, l.faults.err()
}
