package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

const (
	stalledAfter = 30 * time.Second
	healthEvery  = time.Minute     // maximum interval of health events
	pictureAge   = 5 * time.Second // maximum age of a picture that is shown; while clients are connected, the watcher replaces it sooner
	sessionScope = "per-sender"
	diskLow      = "low"
)

// monitor checks the backend: for the methods health and status, for events, and for the HTTP
// probes. It is safe for concurrent use.
type monitor struct {
	backend   Backend
	state     *lifecycle
	log       *slog.Logger
	startedAt time.Time
	zones     string // the release of the time zone rules
	current   atomic.Pointer[healthPicture]
}

// healthPicture is the result of the last check of the gateway, in both of its forms.
type healthPicture struct {
	version uint64
	at      time.Time // time of the check
	views   healthViews
	essence string // compared to detect changes
	status  chat.SystemStatus
	took    time.Duration
}

type healthViews struct{ standard, extended json.RawMessage }

// ageMs returns an age in milliseconds; null for a negative age, which means that the thing does
// not exist or never happened.
func ageMs(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Stalled reports whether work has been ready for so long while nothing starts that a restart is
// the remedy.
func Stalled(p chat.Progress) bool { return p.StalledFor >= stalledAfter || p.CronAge >= stalledAfter }

// problemsOf lists the problems of the gateway, in sentences; empty = healthy.
func problemsOf(st *chat.SystemStatus) []string {
	problems := []string{}
	for _, n := range faults(st) {
		problems = append(problems, n.Text)
	}
	return problems
}

func (m *monitor) picture(st chat.SystemStatus, took time.Duration) *healthPicture {
	problems := problemsOf(&st)
	p := wire.HealthResult{
		OK: len(problems) == 0, TS: time.Now().UnixMilli(), DurationMs: took.Milliseconds(),
		Channels: map[string]wire.HealthChannel{}, ChannelOrder: []string{}, ChannelLabels: map[string]string{},
		DefaultAgentID: m.backend.DefaultAgent(), Agents: []string{},
		Sessions: wire.HealthSessions{Path: st.Store, Recent: []string{}},
	}
	for _, ch := range st.Channels {
		if _, twice := p.Channels[ch.ID]; twice {
			continue // additional accounts are in channels.status
		}
		p.ChannelOrder = append(p.ChannelOrder, ch.ID)
		p.ChannelLabels[ch.ID] = cmp.Or(ch.Label, ch.ID)
		p.Channels[ch.ID] = wire.HealthChannel{
			Configured: ch.Configured, Running: ch.Running, Connected: ch.Connected, LastPollAgeMs: ageMs(ch.LastPollAge), LastError: orNull(ch.LastError),
		}
	}
	pic := &healthPicture{status: st, took: took}
	extra := wire.HealthExtra{
		Problems: problems, Database: wire.HealthDatabase{OK: st.StoreError == "", LatencyMs: st.StoreLatency.Milliseconds()},
		Scheduler: wire.HealthScheduler{OK: !Stalled(st.Progress), LastTickAgeMs: ageMs(st.Progress.CronAge)}, NodeID: st.NodeID,
	}
	pic.views = viewsOf(p, extra)
	pic.essence = string(strictjson.Encode([]any{problems, p.ChannelOrder, connected(st.Channels)}))
	return pic
}

func viewsOf(p wire.HealthResult, extra wire.HealthExtra) healthViews {
	v := healthViews{standard: strictjson.Encode(p)}
	p.HealthExtra = &extra
	v.extended = strictjson.Encode(p)
	return v
}

func connected(channels []chat.ChannelStatus) []bool {
	out := make([]bool, 0, 2*len(channels))
	for _, ch := range channels {
		out = append(out, ch.Running, ch.Connected)
	}
	return out
}

// look takes a new picture of the process and stores it with the version that was last published.
// It may run concurrently with other calls and the watcher.
func (m *monitor) look(ctx context.Context) *healthPicture {
	began := time.Now()
	st := m.backend.Status(ctx)
	pic := m.picture(st, time.Since(began))
	pic.at = began
	for {
		old := m.current.Load()
		if old != nil {
			pic.version = old.version
		}
		if m.current.CompareAndSwap(old, pic) {
			return pic
		}
	}
}

// now returns the last picture with the current state of the channels, because the first picture of
// a process is taken before its channels have started. It reads the store only when the picture is
// older than [pictureAge].
func (m *monitor) now(ctx context.Context) *healthPicture {
	for {
		old := m.current.Load()
		if time.Since(old.at) > pictureAge {
			old = m.look(ctx)
		}
		channels := withCounts(m.backend.Channels(), old.status.Channels)
		if slices.EqualFunc(channels, old.status.Channels, alike) {
			return old
		}
		st := old.status
		st.Channels = channels
		pic := m.picture(st, old.took)
		pic.version, pic.at = old.version, old.at
		if m.current.CompareAndSwap(old, pic) {
			return pic
		}
	}
}

// withCounts adds the outbox counts of the last check to channels.
func withCounts(channels, last []chat.ChannelStatus) []chat.ChannelStatus {
	for i := range channels {
		ch := &channels[i]
		if at := slices.IndexFunc(last, func(was chat.ChannelStatus) bool { return was.Name == ch.Name }); at >= 0 {
			ch.OutboxWaiting, ch.OutboxFailed, ch.OutboxMaybeSent, ch.OldestWaiting = last[at].OutboxWaiting, last[at].OutboxFailed, last[at].OutboxMaybeSent, last[at].OldestWaiting
			ch.LastFailed = last[at].LastFailed
		}
	}
	return channels
}

// alike reports whether two pictures of a channel differ at most in the age of its last poll, which
// always changes.
func alike(a, b chat.ChannelStatus) bool {
	a.LastPollAge = b.LastPollAge
	return a == b
}

// watch checks the process at a fixed interval: it publishes health and lanes when they change, and
// ends the connections and HTTP requests whose credential has become invalid. Without a connection
// or request it reads nothing, so an idle gateway does not use its database. It ends with ctx.
func (s *Server) watch(ctx context.Context) {
	t := time.NewTicker(s.cfg.Deadlines.Watch)
	defer t.Stop()
	w := &watcher{s: s, published: time.Now(), essence: s.health.current.Load().essence}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			connected := len(s.hub.Opened()) > 0
			if connected || s.services.held.some() {
				s.refreshKeys(ctx)
			}
			if connected {
				w.once(ctx)
			}
		}
	}
}

func (s *Server) refreshKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Deadlines.Watch)
	defer cancel()
	s.auth.Refresh(ctx)
	now := time.Now()
	inForce := func(cred auth.Credential) bool { return s.auth.InForce(cred, now) }
	for _, c := range s.hub.Opened() {
		if cred := c.who.Load().cred; !inForce(cred) {
			c.End(&socket.Closing{Code: websocket.ClosePolicyViolation, Text: errEnded(cred, now).Message, Reason: socket.ClosedRevoked})
		}
	}
	s.services.held.endAll(now, inForce)
}

// watcher has the last published state.
type watcher struct {
	s         *Server
	published time.Time
	essence   string
	lanes     string
}

func (w *watcher) once(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, w.s.cfg.Deadlines.Request)
	defer cancel()
	pic := w.s.health.look(bound)
	if pic.essence != w.essence || time.Since(w.published) >= healthEvery {
		w.publishHealth(pic)
	}
	w.publishLanes()
}

func (w *watcher) publishHealth(pic *healthPicture) {
	w.essence, w.published = pic.essence, time.Now()
	next := *pic
	next.version++
	w.s.health.current.Store(&next)
	for _, c := range w.s.hub.Opened() {
		if id := c.who.Load(); id.level >= chat.ScopeLevel(chat.ScopeRead) {
			c.PutState(wire.EventHealth, next.of(id.extended), next.version)
		}
	}
}

// of returns the picture in one of its forms.
func (p *healthPicture) of(extended bool) json.RawMessage {
	if extended {
		return p.views.extended
	}
	return p.views.standard
}

// publishLanes also publishes when work of another replica may have changed, which these lanes do
// not show: a page then reads the running turns again.
func (w *watcher) publishLanes() {
	lanes := lanesOf(w.s.backend.Lanes())
	payload := strictjson.Encode(wire.LanesEvent{Lanes: lanes.Lanes, Sessions: lanes.Sessions})
	if changed := w.s.publish.changed.Swap(false); !changed && string(payload) == w.lanes {
		return
	}
	w.lanes = string(payload)
	for _, c := range w.s.hub.Opened() {
		if id := c.who.Load(); id.extended && id.level >= chat.ScopeLevel(chat.ScopeRead) && !id.cred.Own() { // its figures include all principals
			c.PutState(wire.EventLanes, payload, 0)
		}
	}
}

type liveness struct {
	OK       bool     `json:"ok"`
	Status   string   `json:"status"`
	UptimeMs int64    `json:"uptimeMs"`
	Progress progress `json:"progress"`
}

type progress struct {
	DispatcherAgeMs *int64 `json:"dispatcherAgeMs"`
	CronTickAgeMs   *int64 `json:"cronTickAgeMs"`
	WriterAgeMs     *int64 `json:"writerAgeMs"`
}

// healthz reports whether the process makes progress. It does not use the database, because a
// restart would not repair that.
func (m *monitor) healthz(w http.ResponseWriter, _ *http.Request) {
	p := m.backend.Progress()
	body := liveness{
		OK: true, Status: "live", UptimeMs: time.Since(m.startedAt).Milliseconds(),
		Progress: progress{ageMs(p.DispatcherAge), ageMs(p.CronAge), ageMs(p.WriterAge)},
	}
	status := http.StatusOK
	switch {
	case Stalled(p):
		body.OK, body.Status, status = false, "stalled", http.StatusServiceUnavailable
	case m.state.draining():
		body.Status = "draining"
	}
	httpbody.WriteJSON(w, status, body)
}

type readiness struct {
	OK     bool            `json:"ok"`
	Checks readinessChecks `json:"checks"`
}

type readinessChecks struct {
	Database   string `json:"database"`
	Migrations string `json:"migrations"`
	Draining   bool   `json:"draining"`
	Disk       string `json:"disk,omitempty"` // "low", or absent
	Starting   bool   `json:"starting,omitempty"`
	Held       bool   `json:"held,omitempty"` // it starts no work; administrators can chat
	Zones      string `json:"zones"`          // the release of the time zone rules of this process
}

// readyz reports whether new work should be sent here.
func (m *monitor) readyz(w http.ResponseWriter, r *http.Request) {
	checks := readinessChecks{Database: "ok", Migrations: "ok", Draining: m.state.draining() || m.state.leaving.Load(), Starting: !m.state.ready(), Zones: m.zones}
	checks.Held = !checks.Starting && m.now(r.Context()).status.Held != ""
	err := m.askReady(r.Context())
	var named *chat.NotReadyError
	switch {
	case errors.As(err, &named) && named.Check == chat.CheckMigrations:
		checks.Migrations = "failed"
	case errors.As(err, &named) && named.Check == chat.CheckDraining:
		checks.Draining = true
	case errors.As(err, &named) && named.Check == chat.CheckDisk:
		checks.Disk = diskLow
	case err != nil:
		checks.Database = "failed"
	}
	body := readiness{OK: err == nil && !checks.Draining && !checks.Starting, Checks: checks}
	if body.OK {
		httpbody.WriteJSON(w, http.StatusOK, body)
		return
	}
	m.log.DebugContext(r.Context(), "not ready", slog.Any("err", err))
	w.Header().Set("Retry-After", "1")
	httpbody.WriteJSON(w, http.StatusServiceUnavailable, body)
}

// askReady calls the backend with a timeout of a second. Its goroutine ends with the backend's
// answer, which follows the end of its context.
func (m *monitor) askReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- m.backend.Ready(ctx) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
