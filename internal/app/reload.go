package app

import (
	"context"
	"reflect"

	"laneway/internal/config"
)

// reload reads the configuration again and applies what can change in a running process: lanes and queues. What cannot is named in the
// log and stays as it was. A configuration with faults changes nothing.
func (p *Process) reload(ctx context.Context) {
	loaded, err := p.opts.Reread()
	if err != nil {
		p.log.ErrorContext(ctx, "the configuration was read again and is not used: it has faults", "err", err)
		return
	}
	next := loaded.Config
	if err := p.dispatch.Reconfigure(next.Lanes.Map(), queueOf(next)); err != nil {
		p.log.ErrorContext(ctx, "the new lanes are not used", "err", err)
		return
	}
	fixed := fixedChanges(p.cfg, next)
	p.cfg.Lanes, p.cfg.Queue = next.Lanes, next.Queue
	p.log.InfoContext(ctx, "the configuration was read again", "changed", []string{"lanes", "queue"}, "needs_restart", fixed)
}

// fixedChanges names the settings that differ and need a new process.
func fixedChanges(old, next config.Config) []string {
	names := []string{}
	a, b := reflect.ValueOf(old), reflect.ValueOf(next)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == "lanes" || key == "queue" || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		names = append(names, key)
	}
	return names
}
