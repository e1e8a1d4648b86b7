package service

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// jobNotFound is the refusal for a job that does not exist or is not visible to the caller.
func jobNotFound(id string) error {
	id = chat.Cut(id, 128)
	return chat.Errorf(chat.CodeInvalid, "cron job not found: %s", chat.Escaped(id, "")).With("code", "CRON_JOB_NOT_FOUND").With("jobId", id)
}

// wireFault maps errors of package schedule to the codes of the protocol.
func wireFault(err error) error {
	if bad, ok := errors.AsType[*schedule.InvalidError](err); ok {
		return chat.Errorf(chat.CodeInvalid, "%s", bad.Error()).With("code", "CRON_INVALID_SCHEDULE").With("field", bad.Field).With("reason", string(bad.Reason))
	}
	return err
}

// limits is the border for the input of a caller.
func (p *shared) limits(by chat.Caller, now time.Time) cron.Border {
	rules := p.cfg.Rules
	if by.Bounded() {
		least := max(rules.MinInterval, p.cfg.UserMinInterval)
		rules = rules.ForChat()
		if p.cfg.UserMinInterval > 0 { // it may be shorter than the default of ForChat
			rules.MinInterval = least
		}
	}
	return cron.Border{
		Now: now, Rules: rules, DefaultAgent: p.agents[0], Lanes: p.turns.Lanes(), Agent: func(id string) bool { return slices.Contains(p.agents, id) }, Agents: p.agents, Channel: p.hasChannel, Channels: p.knownChannels(),
		Payload: func(kind cron.PayloadKind) bool { return slices.Contains(p.cfg.Payloads, kind) },
		Webhook: p.cfg.CheckWebhook,
	}
}

// hasChannel reports whether a job may name a channel. Telegram may be named before it is
// configured.
func (p *shared) hasChannel(name string) bool {
	kind := chat.ChannelKind(name)
	return name != channel.Webhook && (kind == "telegram" || slices.ContainsFunc(p.channels, func(have string) bool { return chat.ChannelKind(have) == kind }))
}

// knownChannels are the names that hasChannel accepts, without duplicates.
func (p *shared) knownChannels() []string {
	names := []string{"telegram"}
	for _, have := range p.channels {
		if kind := chat.ChannelKind(have); p.hasChannel(have) && kind != channel.Web {
			names = append(names, kind)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// givenKey is the key that a client chose, "" when it chose none.
func givenKey(m cron.Members) (string, error) {
	key := ""
	for _, name := range []string{"key", "declarationKey"} {
		raw, given := m[name]
		if !given {
			continue
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", chat.Errorf(chat.CodeInvalid, "at /%s: must be string", name)
		}
		if err := chat.CheckText(name, s, 800); err != nil || len([]rune(s)) > 200 {
			return "", chat.Errorf(chat.CodeInvalid, "at /%s: must have 1 to 200 characters, not only blanks", name)
		}
		if key != "" && s != key {
			return "", chat.Errorf(chat.CodeInvalid, "key and declarationKey are different; give one of them")
		}
		key = s
	}
	return key, nil
}

// nameRule extracts ifNameExists from the members of a call.
func nameRule(m cron.Members) (rule cron.NameRule, rest cron.Members, err error) {
	raw, given := m["ifNameExists"]
	if !given {
		return cron.NameNew, m, nil
	}
	if err := json.Unmarshal(raw, &rule); err != nil || !slices.Contains([]cron.NameRule{cron.NameNew, cron.NameRefuse, cron.NameReplace}, rule) {
		return "", nil, chat.Errorf(chat.CodeInvalid, "at /ifNameExists: must be equal to one of the allowed values (refuse, replace, new)")
	}
	return rule, without(m, "ifNameExists"), nil
}

// formerID extracts formerId from the members of a call.
func formerID(m cron.Members) (id string, rest cron.Members, err error) {
	raw, given := m["formerId"]
	if !given {
		return "", m, nil
	}
	if err := json.Unmarshal(raw, &id); err != nil {
		return "", nil, chat.Errorf(chat.CodeInvalid, "at /formerId: must be string")
	}
	return id, without(m, "formerId"), nil
}

// nameExists is the refusal of a job whose name is taken.
func nameExists(e *cron.NameExistsError) error {
	if len(e.IDs) == 1 {
		return chat.Errorf(chat.CodeInvalid, "a job with the name %q exists: %s; change it, or create another one", e.Name, e.IDs[0]).
			With("code", "CRON_NAME_EXISTS").With("name", e.Name).With("jobIds", e.IDs)
	}
	return chat.Errorf(chat.CodeInvalid, "%d jobs with the name %q exist: %s; change one of them by its id, or create another one", len(e.IDs), e.Name, strings.Join(e.IDs, ", ")).
		With("code", "CRON_NAME_EXISTS").With("name", e.Name).With("jobIds", e.IDs)
}

// targetCheck refuses a job that runs in, or delivers to, a session that the caller may not use.
// old is the job before the change, zero for a new one.
type targetCheck func(ctx context.Context, old, j cron.Job, by chat.Caller) error

// anyTarget is for jobs that are created in a chat: they deliver to the chat of their owner, and
// run in a session of their own.
func anyTarget(context.Context, cron.Job, cron.Job, chat.Caller) error { return nil }

// mayTarget refuses a target that old does not have, if the caller sees only its own jobs and may
// not use the target: a session of another principal, and a chat other than the private one of a
// chat user. The targets of old were checked when the job got them, by rules that a command in a
// chat does not share.
func (p *shared) mayTarget(ctx context.Context, old, j cron.Job, by chat.Caller) error {
	if !by.Own {
		return nil
	}
	had, err := targetsOf(old)
	if err != nil {
		return err
	}
	targets, err := targetsOf(j)
	if err != nil {
		return err
	}
	for _, at := range targets {
		switch {
		case slices.Contains(had, at):
		case !at.session.IsZero():
			if err := p.mayUse(ctx, at.session, by.Principal); err != nil {
				return err
			}
		case !by.PrivateChat(at.channel, at.chat):
			return chat.ForeignChat(at.channel, at.chat)
		}
	}
	return nil
}

// jobTarget is where a job runs or delivers: a session, or a chat on a channel.
type jobTarget struct {
	session               chat.SessionKey
	channel, chat, thread string
}

// targetsOf are the targets of a job that belong to a principal; webhooks do not.
func targetsOf(j cron.Job) ([]jobTarget, error) {
	var all []jobTarget
	failures, _ := j.Delivery.Failure()
	for _, at := range []cron.Delivery{j.Delivery, j.Alert.Delivery, failures} {
		switch {
		case at.Mode != cron.DeliverAnnounce:
		case toSession(at):
			all = append(all, jobTarget{session: sessionOf(j.Agent, at)})
		default:
			all = append(all, jobTarget{channel: at.Channel, chat: at.To, thread: at.Thread})
		}
	}
	if j.Session == "" || j.Session == cron.Isolated {
		return all, nil
	}
	key := chat.MainKey(j.Agent)
	if name, named := strings.CutPrefix(j.Session, cron.NamedSession); named && name != "" {
		var err error
		if key, err = chat.ParseSessionKey(name, j.Agent); err != nil {
			return nil, err
		}
	}
	return append(all, jobTarget{session: key}), nil
}

// mayEdit refuses an edit of a built-in job, and an edit based on another revision.
func mayEdit(old cron.Job, expected string) error {
	switch {
	case old.Owner == cron.SystemOwner:
		return chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be changed, only paused, resumed and run")
	case expected != "" && expected != old.Revision:
		return chat.Errorf(chat.CodeInvalid, "cron job changed since it was read").With("code", "CRON_JOB_CHANGED").
			With("expectedConfigRevision", expected).With("actualConfigRevision", old.Revision)
	}
	return nil
}

// errNoFire refuses to enable a job without a future fire.
func errNoFire() error {
	return &schedule.InvalidError{
		Field: "schedule", Reason: schedule.InvalidPast, Sentence: "the job has no fire any more; give it another schedule, run it by hand or remove it",
	}
}

// accountsEvery is the maximum age of the cached accounts.
const accountsEvery = 15 * time.Second

// accounts caches the accounts of channels in the store's leases, of all processes: a process
// without the channel may claim a run. It is safe for concurrent use.
type accounts struct {
	store  store.Store
	known  atomic.Pointer[[]string] // sorted
	readAt atomic.Int64             // Unix nanoseconds
}

// read reads the accounts unless they were read recently.
func (a *accounts) read(ctx context.Context) error {
	if a.known.Load() != nil && time.Since(time.Unix(0, a.readAt.Load())) < accountsEvery {
		return nil
	}
	cluster, err := a.store.Cluster(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(cluster.Leases))
	a.known.Store(&names)
	a.readAt.Store(time.Now().UnixNano())
	return nil
}

// has reports whether a process has the account.
func (a *accounts) has(name string) bool {
	known := a.known.Load()
	return known != nil && slices.Contains(*known, name)
}

// of are the accounts of a kind of channel.
func (a *accounts) of(kind string) []string {
	known := a.known.Load()
	if known == nil {
		return nil
	}
	var of []string
	for _, name := range *known {
		if name != kind && chat.ChannelKind(name) == kind {
			of = append(of, name)
		}
	}
	return of
}

// named reports whether an address names its account, or needs none.
func (p *shared) named(to chat.Target) bool {
	return to.IsZero() || strings.Contains(to.Channel, ":") || slices.Contains(p.channels, to.Channel)
}

// unnamed is why nothing can be sent to an address without a known account; "" when it can be.
func (p *shared) unnamed(to chat.Target) string {
	switch {
	case p.named(to):
		return ""
	case len(p.accounts.of(to.Channel)) > 1:
		return "there are several accounts of " + to.Channel + " (" + strings.Join(p.accounts.of(to.Channel), ", ") + "); name one of them"
	default:
		return "no account of " + to.Channel + " is known; start a gateway that has one"
	}
}

// addresses are the targets of the answers and alerts of a job.
func (d *Delivery) addresses(j cron.Job) []chat.Target {
	failures, _ := j.Delivery.Failure()
	return []chat.Target{d.target(j.Agent, j.Delivery), d.target(j.Agent, j.Alert.Delivery), d.target(j.Agent, failures)}
}

// Address is a target with the account of its channel, in the form of a job's target. It refuses an
// address that matches several accounts.
func (s *Service) Address(ctx context.Context, to chat.Target) (chat.Target, error) {
	if s.named(to) {
		return to, nil
	}
	if err := s.accounts.read(ctx); err != nil {
		return to, err
	}
	to = s.Delivery.target("", cron.Delivery{Mode: cron.DeliverAnnounce, Channel: to.Channel, To: to.ChatID, Thread: to.Thread})
	return to, s.several(to)
}

// several refuses an address that matches several accounts. A channel without known accounts is
// accepted.
func (p *shared) several(to chat.Target) error {
	if p.named(to) || len(p.accounts.of(to.Channel)) < 2 {
		return nil
	}
	return chat.Errorf(chat.CodeInvalid, "%s", p.unnamed(to)).With("code", "CRON_UNKNOWN_ACCOUNT").With("channel", to.Channel)
}

// unserved is a sentence about an address of a job whose account no live process has; "" if each
// has one, or if that cannot be read.
func (ed *Editor) unserved(ctx context.Context, j cron.Job) string {
	if err := ed.accounts.read(ctx); err != nil {
		return ""
	}
	for _, to := range ed.delivery.addresses(j) {
		kind := chat.ChannelKind(to.Channel)
		if to.IsZero() || kind == channel.Web || kind == channel.Webhook || slices.Contains(ed.channels, to.Channel) || ed.accounts.has(to.Channel) {
			continue
		}
		account := "an account of " + kind
		if _, name, named := strings.Cut(to.Channel, ":"); named {
			account = "the account " + name + " of " + kind
		}
		return "no running gateway has " + account + ", so nothing reaches " + to.Channel + ":" + to.ChatID + " until one has; configure it (channels." + kind + ") and restart"
	}
	return ""
}

// mayDeliver refuses a job with a new address that matches several accounts.
func (ed *Editor) mayDeliver(ctx context.Context, old, next cron.Job) error {
	if err := ed.accounts.read(ctx); err != nil {
		return err
	}
	before := ed.delivery.addresses(old)
	for _, to := range ed.delivery.addresses(next) {
		if slices.Contains(before, to) {
			continue
		}
		if err := ed.several(to); err != nil {
			return err
		}
	}
	return nil
}
