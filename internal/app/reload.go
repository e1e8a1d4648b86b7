package app

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"laneway/internal/chat"
	"laneway/internal/config"
)

// reload reads the configuration again and applies what can change in a running process: lanes and queues. It logs the names of other
// changed settings, which keep their values. An invalid configuration changes nothing.
func (p *Process) reload(ctx context.Context) {
	loaded, err := p.opts.Reread()
	if err != nil {
		p.log.ErrorContext(ctx, "the configuration was read again and is not used: it has faults", "err", err)
		return
	}
	next := loaded.Config
	if err := p.dispatch.Reconfigure(lanesOf(next), queueOf(next)); err != nil {
		p.log.ErrorContext(ctx, "the new lanes are not used", "err", err)
		return
	}
	fixed, changed := fixedChanges(p.cfg, loaded), append(settingChanges("lanes", p.cfg.Lanes, next.Lanes), settingChanges("queue", p.cfg.Queue, next.Queue)...)
	p.auditReload(ctx, reloadable(p.cfg), reloadable(next))
	p.cfg.Lanes, p.cfg.Queue = next.Lanes, next.Queue
	p.log.InfoContext(ctx, "the configuration was read again", "changed", changed, "needs_restart", fixed)
}

// settingChanges lists the settings of a group that differ, each with its values.
func settingChanges[T any](group string, old, next T) []string {
	names := []string{}
	a, b := reflect.ValueOf(old), reflect.ValueOf(next)
	for i := range a.NumField() {
		if before, after := a.Field(i).Interface(), b.Field(i).Interface(); before != after {
			names = append(names, fmt.Sprintf("%s.%s: %v → %v", group, a.Type().Field(i).Tag.Get("yaml"), before, after))
		}
	}
	return names
}

// verbReload is the verb of a reload in the audit log.
const verbReload = "config.reload"

// reloadable returns the settings that a reload can change, as text without secrets.
func reloadable(cfg config.Config) string {
	text, err := json.Marshal([]any{cfg.Lanes, cfg.Queue})
	if err != nil {
		return "" // numbers and strings cannot fail; on an error nothing is recorded
	}
	return string(text)
}

// auditReload records a reload that changes something. The reload is applied even when the record fails.
func (p *Process) auditReload(ctx context.Context, before, after string) {
	if before == after {
		return
	}
	row := chat.Audit{Who: "host", Verb: verbReload, Object: "lanes and queue"}
	if err := p.store.Audit(ctx, *row.Between(before, after)); err != nil {
		p.log.WarnContext(ctx, "the reload is not in the audit log", "err", err)
	}
}

// fixedChanges names the settings that differ and need a new process. Callers' secrets from files are not among them, because they are
// always reread.
func fixedChanges(old config.Config, next *config.Loaded) []string {
	names := []string{}
	a, b := reflect.ValueOf(old), reflect.ValueOf(next.Config)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == "lanes" || key == "queue" || next.Rereads(key) || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		names = append(names, key)
	}
	return names
}
