package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// Limits that must hold while a small credential does everything that it may.
const (
	abuseMaxRSS    = 300 << 20
	abuseMaxHealth = 100 * time.Millisecond
	abuseMaxStart  = time.Second
	// abuseIdleGrowth is the allowed growth of the database in a stage that writes nothing: pages
	// of the log, heartbeats, rows of the audit log.
	abuseIdleGrowth = 16 << 20
	// abuseCopies is how often a text is stored: the message, its transcript entry, the entry of
	// the echo's answer, and the outgoing row.
	abuseCopies = 4
)

// abuseGateway has two agents: main, which the credentials use, and idle, which only the operator
// uses.
const abuseGateway = "agents: {main: {runner: echo, script: true, output_limit: 1048576}, idle: {runner: echo}}\ndefault_agent: main\n"

// abuseLife is one installation during the test.
type abuseLife struct {
	t        *testing.T
	g        *Gateway
	database string
	conns    int
	each     time.Duration // duration of a stage of one method
	tokens   map[string]string
	world    *world
	bytes    int64 // limits.bytes: the bytes of one credential's calls in a minute, at once or spread
	oracle   *Oracle
	rows     []abuseRow
}

// abuseRow is a row of the table.
type abuseRow struct {
	method            string
	sent, ok          int64
	refused           map[string]int
	rss, growth       int64
	allowed           int64
	health, start     time.Duration
	healths, messages int
	lost              []error
}

// Each method, and then all of them together, are called for some time by the smallest credential
// that may call them, over 32 connections, up to its allowances. The process stays small, the
// operator is served, and the database grows by at most the allowance.
func TestASmallCredentialDegradesTheServiceForNoOther(t *testing.T) {
	if !testrun.Long() || len(raceFlag()) > 0 {
		t.Skip("it measures the machine, and takes it from the tests beside it: run it alone, in a long run, without the race detector")
	}
	t.Parallel()
	const each, mixed = 5 * time.Second, time.Minute
	methods := abuseOrder(t)
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			database := ""
			if store == "postgres" {
				database = testpg.DB(t)
			}
			began := time.Now()
			a := beginAbuse(t, database, each)
			a.stage("none", each, nil) // only the operator: the baseline of the machine
			for _, m := range methods {
				a.stage(m.Name, each, []publishedMethod{m})
			}
			a.stage("mixed", mixed, methods)
			t.Logf("figure: abuse on %s over %d connections, %s each, %s mixed, %s in all\n%s", store, a.conns, each, mixed,
				time.Since(began).Round(time.Second), a.table())
			OpenOracle(t, a.g, database).Check(15 * time.Second)
		})
	}
}

// beginAbuse creates an installation, its credentials, and their data.
func beginAbuse(t *testing.T, database string, each time.Duration) *abuseLife {
	t.Helper()
	g := Install(t, database, abuseGateway).AtOnce()
	plain, err := buildPlain()
	if err != nil {
		t.Fatal(err)
	}
	g.binary = plain
	a := &abuseLife{t: t, g: g, each: each, conns: mostConns, database: database, tokens: map[string]string{}}
	limits := []string{"LANEWAY_LIMITS_CHAT=0", "LANEWAY_LIMITS_CRON_WRITES=0", "LANEWAY_LIMITS_REQUESTS=0", "LANEWAY_LIMITS_BYTES=0"}
	lasting := g.env
	g.env = slices.Concat(lasting, limits) // the data is created without allowances
	g.Start()
	for name, scope := range map[string]string{abuseReader: "read", abuseWriter: "write", abuseAdmin: "admin"} {
		out, errs, code := g.CLI(t.Context(), "", "token", "create", name, "--scope", scope, "--visible", "own")
		if code != 0 {
			t.Fatalf("token create %s: %s", name, errs)
		}
		a.tokens[name] = strings.TrimSpace(out)
	}
	a.world = a.settle()
	a.oracle = OpenOracle(t, g, database)
	g.env = lasting
	a.restart()
	a.bytes = a.limitOfBytes()
	return a
}

// limitOfBytes returns the byte limit of the gateway's configuration.
func (a *abuseLife) limitOfBytes() int64 {
	a.t.Helper()
	out, errs, code := a.g.CLI(a.t.Context(), "", "serve", "--config", a.g.config, "--print-config", "--json")
	var settings []struct {
		Path  string
		Value json.RawMessage
	}
	if err := json.Unmarshal([]byte(out), &settings); code != 0 || err != nil {
		a.t.Fatalf("reading the configuration: %v %s", err, errs)
	}
	for _, s := range settings {
		if s.Path == "limits.bytes" {
			n, err := strconv.ParseInt(string(s.Value), 10, 64)
			if err != nil || n < 1 {
				a.t.Fatalf("limits.bytes is %s: %v", s.Value, err)
			}
			return n
		}
	}
	a.t.Fatal("the configuration has no limits.bytes")
	return 0
}

// restart starts a new process, so that its memory can be measured.
func (a *abuseLife) restart() {
	a.t.Helper()
	a.g.Signal(syscall.SIGTERM)
	a.g.WaitExit(60 * time.Second)
	a.g.Start()
}

// settle creates the data that the calls read and change: one session with the largest entries,
// many small ones, and jobs with the largest text and answers.
func (a *abuseLife) settle() *world {
	a.t.Helper()
	const turns, sessions, jobs = 200, 2000, 1000
	w := &world{
		big: "agent:main:big", huge: quoted(strings.Repeat("x", largestText)), hugeJob: quoted(strings.Repeat("y", largestJobText)),
		sleep: min(max(2*a.each, 300*time.Millisecond), 2*time.Second),
		deep:  strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60), unmatched: quoted(strings.Repeat("z", 256)),
	}
	writer, admin := dialWhenKnown(a.t, a.g, a.tokens[abuseWriter], nil), dialWhenKnown(a.t, a.g, a.tokens[abuseAdmin], nil)
	for n := range turns {
		a.say(writer, w.big, strings.Repeat("x", largestText), fmt.Sprint("big-", n))
	}
	w.sessions, w.victims = make([]string, sessions), make([]string, sessions)
	a.inParallel(sessions, func(n int) {
		w.sessions[n], w.victims[n] = fmt.Sprint("agent:main:s-", n), fmt.Sprint("agent:main:v-", n)
		a.say(writer, w.sessions[n], strings.Repeat("x", 1000), fmt.Sprint("small-", n))
		a.say(admin, w.victims[n], strings.Repeat("x", 1000), fmt.Sprint("victim-", n))
	})
	made := make([]string, 2*jobs)
	a.inParallel(2*jobs, func(n int) {
		made[n] = a.job(admin, fmt.Sprint("job ", n), map[string]any{"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}, strings.Repeat("y", largestJobText))
		if n < jobs {
			if _, err := admin.Call("cron.run", map[string]any{"id": made[n], "mode": "force"}, time.Minute); err != nil {
				a.t.Errorf("cron.run: %v", err)
			}
		}
	})
	w.jobs, w.removable = made[:jobs], made[jobs:]
	w.backfill = a.job(admin, "backfill", map[string]any{"kind": "cron", "expr": "* * * * *", "tz": "UTC"}, "past")
	if _, err := admin.Call("cron.toggle", map[string]any{"id": w.backfill, "enabled": false}, time.Minute); err != nil {
		a.t.Fatal(err)
	}
	a.rest()
	return w
}

// inParallel calls f for 0 to n-1, eight at a time.
func (a *abuseLife) inParallel(n int, f func(n int)) {
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				f(i)
			}
		})
	}
	all.Wait()
}

// say sends a message and waits for its answer.
func (a *abuseLife) say(c *Client, session, text, key string) {
	for {
		_, err := c.Call("agent", map[string]any{"message": text, "idempotencyKey": key, "sessionKey": session}, time.Minute)
		if refused, is := errors.AsType[*WireError](err); is && refused.Retryable {
			pause(200 * time.Millisecond)
			continue
		}
		if err != nil {
			a.t.Errorf("%s: %v", key, err)
		}
		return
	}
}

func (a *abuseLife) job(c *Client, name string, schedule map[string]any, text string) string {
	raw, err := c.Call("cron.add", jobParams(name, schedule, saying(text)), time.Minute)
	var made jobView
	if err == nil {
		err = json.Unmarshal(raw, &made)
	}
	if err != nil || made.ID == "" {
		a.t.Errorf("making %s: %v", name, err)
	}
	return made.ID
}

// rest waits until no work waits or runs, two minutes at most, so that a stage begins with an idle
// gateway.
func (a *abuseLife) rest() {
	a.t.Helper()
	c, err := Dial(a.g.URL(), a.g.Token(), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	testrun.Eventually(a.t, "the lanes are idle", func() bool {
		var st lanesStatus
		if err := c.Into(&st, "lanes.status", map[string]any{}); err != nil {
			a.t.Fatal(err)
		}
		busy := 0
		for _, l := range st.Lanes {
			busy += l.Active + l.Waiting
		}
		return busy == 0
	})
}

// stage calls these methods for some time and adds a row.
func (a *abuseLife) stage(name string, length time.Duration, methods []publishedMethod) {
	a.t.Helper()
	if a.g.rss() > abuseMaxRSS/3 {
		a.restart()
	}
	a.world.stage++
	row := abuseRow{method: name, growth: -a.size()}
	counts := &tally{}
	gang := a.gang(methods, counts)
	a.resetPeak()
	stop := make(chan struct{})
	operator := a.operate(stop)
	var all sync.WaitGroup
	calls := abuseCalls()
	for conn, member := range gang {
		all.Go(func() {
			a.attack(member, stop, func(n int) (string, string) {
				m := member.methods[n%len(member.methods)]
				return m, calls[m].params(a.world, conn, n)
			})
		})
	}
	pause(length)
	close(stop)
	all.Wait()
	row.health, row.start, row.healths, row.messages = operator()
	a.rest()
	row.rss = a.peak()
	row.growth += a.size()
	row.sent, row.ok, row.refused, row.lost = counts.sent.Load(), counts.ok.Load(), counts.refused, counts.lost
	row.allowed = a.allowed(methods, length)
	a.rows = append(a.rows, row)
	a.judge(row)
}

// attack keeps one connection busy until the stage ends. If the gateway closes it as a slow reader,
// it is opened again.
func (a *abuseLife) attack(m ganger, stop <-chan struct{}, next func(n int) (method, params string)) {
	c, n := m.abuser, 0
	for {
		n = c.attack(stop, n, next)
		select {
		case <-stop:
			c.settle(min(4*a.each, 10*time.Second))
			c.leave()
			return
		default:
		}
		c.leave()
		var err error
		if c, err = enlist(a.g.addr(), m.token, m.scope, c.counts); err != nil {
			a.t.Errorf("a connection that was closed is not taken again: %v", err)
			return
		}
	}
}

// ganger is an abuser with its methods and its scope.
type ganger struct {
	*abuser

	token, scope string
	methods      []string
}

// gang opens the connections; with several methods, they are divided among the credentials and
// scopes.
func (a *abuseLife) gang(methods []publishedMethod, counts *tally) []ganger {
	a.t.Helper()
	type kind struct{ as, scope string }
	calls := abuseCalls()
	kinds := map[kind][]string{}
	for _, m := range methods {
		k := kind{calls[m.Name].as, m.Scope}
		kinds[k] = append(kinds[k], m.Name)
	}
	order := slices.SortedFunc(maps.Keys(kinds), func(x, y kind) int { return strings.Compare(x.as+x.scope, y.as+y.scope) })
	var out []ganger
	for i := range a.conns {
		if len(order) == 0 {
			break
		}
		k := order[i%len(order)]
		c, err := enlist(a.g.addr(), a.tokens[k.as], k.scope, counts)
		if err != nil {
			a.t.Fatalf("connection %d as %s: %v", i, k.as, err)
		}
		out = append(out, ganger{c, a.tokens[k.as], k.scope, kinds[k]})
	}
	return out
}

// allowed returns the allowed growth of the database: only its own work when all methods read,
// otherwise the allowance of each credential, at once and then spread over the stage.
func (a *abuseLife) allowed(methods []publishedMethod, length time.Duration) int64 {
	calls, writers := abuseCalls(), map[string]bool{}
	for _, m := range methods {
		if m.Scope != "operator.read" {
			writers[calls[m.Name].as] = true
		}
	}
	perCredential := int64(float64(a.bytes) * (1 + length.Minutes()) * abuseCopies)
	return abuseIdleGrowth + int64(len(writers))*perCredential
}

// size returns the size of the database with its log.
func (a *abuseLife) size() int64 {
	if a.database != "" {
		return int64(a.oracle.Count("SELECT pg_database_size(current_database())"))
	}
	var n int64
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(a.g.SQLite() + suffix); err == nil {
			n += info.Size()
		}
	}
	return n
}

// resetPeak resets the kernel's peak resident size.
func (a *abuseLife) resetPeak() {
	a.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.g.pid()), []byte("5"), 0); err != nil {
		a.t.Fatal(err)
	}
}

// peak returns the peak resident size since resetPeak.
func (a *abuseLife) peak() int64 {
	a.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.g.pid()))
	if err != nil {
		a.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return kb << 10
}

// judge compares a row with the limits.
func (a *abuseLife) judge(r abuseRow) {
	a.t.Helper()
	if r.rss > abuseMaxRSS {
		a.t.Errorf("%s: the process had %d MB, bound %d", r.method, r.rss>>20, abuseMaxRSS>>20)
	}
	if r.health > abuseMaxHealth {
		a.t.Errorf("%s: the operator's health took %s (p99 of %d), bound %s", r.method, r.health, r.healths, abuseMaxHealth)
	}
	if r.start > abuseMaxStart {
		a.t.Errorf("%s: a message of the operator to an idle agent started after %s, bound %s", r.method, r.start, abuseMaxStart)
	}
	if r.growth > r.allowed {
		a.t.Errorf("%s: the database grew by %d KB, allowed %d", r.method, r.growth>>10, r.allowed>>10)
	}
	if (r.sent == 0 && r.method != "none") || r.healths == 0 || r.messages == 0 {
		a.t.Errorf("%s: %d calls, %d of the operator's health, %d messages of the operator", r.method, r.sent, r.healths, r.messages)
	}
}

// table formats the results of all stages as Markdown.
func (a *abuseLife) table() string {
	var b strings.Builder
	b.WriteString("| method | RSS peak MB | health p99 ms | start max ms | growth KB (allowed) | calls | ok | refused |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range a.rows {
		var refused []string
		for _, code := range slices.Sorted(maps.Keys(r.refused)) {
			refused = append(refused, fmt.Sprintf("%s %d", code, r.refused[code]))
		}
		if len(r.lost) > 0 {
			refused = append(refused, fmt.Sprintf("%d connections closed (%v)", len(r.lost), r.lost[0]))
		}
		fmt.Fprintf(&b, "| %s | %d | %.1f | %.1f | %d (%d) | %d | %d | %s |\n", r.method, r.rss>>20, float64(r.health.Microseconds())/1000,
			float64(r.start.Microseconds())/1000, r.growth>>10, r.allowed>>10, r.sent, r.ok, strings.Join(refused, ", "))
	}
	return b.String()
}

// startLimit is how long the operator waits for the start of one message before it continues
// without it.
const startLimit = 20 * time.Second

// operate is the operator during a stage. It calls health every 20 ms, and sends a message to the
// idle agent every 100 ms once the previous one has started. The returned function waits for the
// end and returns the 99th percentile of the health calls, the longest start, and their numbers.
func (a *abuseLife) operate(stop <-chan struct{}) func() (health, start time.Duration, healths, messages int) {
	a.t.Helper()
	token := a.g.Token()
	starts := &starts{waiting: map[string]chan struct{}{}}
	looking, err := Dial(a.g.URL(), token, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	speaking, err := Dial(a.g.URL(), token, starts.event)
	if err != nil {
		a.t.Fatal(err)
	}
	var (
		took, began []time.Duration
		all         sync.WaitGroup
	)
	all.Go(func() {
		defer looking.Close()
		each(stop, 20*time.Millisecond, func(int) bool {
			at := time.Now()
			_, err := looking.Call("health", map[string]any{}, 30*time.Second)
			took = append(took, time.Since(at))
			if err != nil {
				a.t.Errorf("the operator's health: %v", err)
			}
			return err == nil
		})
	})
	all.Go(func() {
		defer speaking.Close()
		each(stop, 100*time.Millisecond, func(n int) bool {
			d, err := starts.send(speaking, fmt.Sprintf("operator-%d-%d", a.world.stage, n))
			began = append(began, d)
			if err != nil {
				a.t.Errorf("the operator's message: %v", err)
			}
			return err == nil
		})
	})
	return func() (time.Duration, time.Duration, int, int) {
		all.Wait()
		_, health, _ := quantiles(took)
		_, _, start := quantiles(began)
		return health, start, len(took), len(began)
	}
}

// each calls f at once and then after every pause, until stop is closed or f returns false.
func each(stop <-chan struct{}, distance time.Duration, f func(n int) bool) {
	tick := time.NewTicker(distance)
	defer tick.Stop()
	for n := 0; f(n); n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// starts records which messages wait for their start.
type starts struct {
	mu      sync.Mutex
	waiting map[string]chan struct{} // by run id
}

// event closes the channel of a run at its first event: the start of its life cycle.
func (s *starts) event(e Event) {
	if e.Name != "agent" {
		return
	}
	var p struct {
		RunID  string
		Stream string
		Data   struct{ Phase string }
	}
	if json.Unmarshal(e.Payload, &p) != nil || p.Stream != "lifecycle" || p.Data.Phase != "start" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.waiting[p.RunID]; ch != nil {
		close(ch)
		delete(s.waiting, p.RunID)
	}
}

// send sends a message to the idle agent and returns the time until the turn starts.
func (s *starts) send(c *Client, key string) (time.Duration, error) {
	started := make(chan struct{})
	s.mu.Lock()
	s.waiting[key] = started
	s.mu.Unlock()
	at := time.Now()
	if _, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:idle:" + key, "message": "hello", "idempotencyKey": key}, 30*time.Second); err != nil {
		return time.Since(at), err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-started:
	case <-limit.C:
	}
	return time.Since(at), nil
}
