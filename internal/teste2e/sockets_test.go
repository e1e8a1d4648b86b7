package teste2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// manySockets removes the limits of sockets; deadlines and buffers are unchanged.
const manySockets = "limits: {chat: 0, cron_writes: 0, sockets: 20000, unauthenticated: 20000, unauthenticated_per_address: 20000, sockets_per_principal: 20000}\n"

// rss returns the resident memory of the process in bytes.
func (g *Gateway) rss() int {
	g.tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", g.pid()))
	if err != nil {
		g.tb.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	if err != nil {
		g.tb.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func (g *Gateway) addr() string { return strings.TrimPrefix(g.URL(), "http://") }

// quantiles returns the median, the 99th percentile and the maximum of durations.
func quantiles(list []time.Duration) (p50, p99, most time.Duration) {
	if len(list) == 0 {
		return 0, 0, 0
	}
	slices.Sort(list)
	return list[len(list)/2], list[len(list)*99/100], list[len(list)-1]
}

// probe calls health every 10 ms until stop is closed, and returns the durations.
func probe(t *testing.T, g *Gateway, token string, stop <-chan struct{}) func() []time.Duration {
	t.Helper()
	c, err := Dial(g.URL(), token, nil)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.Close()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			began := time.Now()
			if _, err := c.Call("lanes.status", map[string]any{}, 30*time.Second); err != nil {
				t.Errorf("lanes.status while there is load: %v", err)
				return
			}
			took = append(took, time.Since(began))
		}
	}()
	return func() []time.Duration { <-done; return took }
}

// openAll opens n authenticated sockets, at most 64 at a time.
func openAll(tb testing.TB, g *Gateway, token string, n int) []*bare {
	tb.Helper()
	list := make([]*bare, n)
	places := make(chan struct{}, 64)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			b, err := login(g.addr(), token)
			if err != nil {
				tb.Errorf("socket %d: %v", i, err)
				return
			}
			list[i] = b
		})
	}
	all.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	tb.Cleanup(func() {
		for _, b := range list {
			_ = b.Close()
		}
	})
	return list
}

// calm starts a gateway and measures the 99th percentile of calls while it is otherwise idle.
func calm(t *testing.T, database string) (g *Gateway, token string, p99 time.Duration) {
	t.Helper()
	g = Install(t, database, manySockets)
	g.Start()
	token = g.Token()
	stop := make(chan struct{})
	calls := probe(t, g, token, stop)
	time.Sleep(2 * time.Second) // a period of calls to compare with
	close(stop)
	_, p99, _ = quantiles(calls())
	return g, token, p99
}

// Idle sockets need little memory and delay no client: calls are answered as quickly as without
// them, messages run, and an event reaches every socket.
func TestIdleSocketsCostLittle(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		n := testrun.Size(500, 10_000)
		g, token, before := calm(t, database)

		base := g.rss()
		began := time.Now()
		sockets := openAll(t, g, token, n)
		opened := time.Since(began)
		each := (g.rss() - base) / n / 1024

		stop := make(chan struct{})
		busy := probe(t, g, token, stop)
		spoken := speak(t, g, token, 100, 5*time.Second)
		close(stop)
		p50, p99, most := quantiles(busy())

		last := broadcast(t, g, token, sockets)
		t.Logf("figure: %d idle sockets: %d KB each, %.0f connects/s, event to all in %s; calls p50 %s p99 %s worst %s beside %d messages (p99 before: %s)",
			n, each, float64(n)/opened.Seconds(), last, p50, p99, most, spoken, before)
		if len(raceFlag()) == 0 && n >= 1000 && each > 20 {
			t.Errorf("an idle socket costs %d KB", each)
		}
	})
}

// broadcast subscribes every socket, publishes one event, and returns the time until the last
// socket has it.
func broadcast(tb testing.TB, g *Gateway, token string, sockets []*bare) time.Duration {
	tb.Helper()
	for i, b := range sockets {
		if err := b.request("s", "sessions.subscribe", map[string]any{}); err != nil {
			tb.Fatalf("socket %d: %v", i, err)
		}
	}
	heard := make([]time.Time, len(sockets))
	var ready, all sync.WaitGroup
	ready.Add(len(sockets))
	for i, b := range sockets {
		all.Go(func() {
			_, err := b.answer("s")
			ready.Done()
			if err == nil {
				_ = b.SetReadDeadline(time.Now().Add(60 * time.Second))
				_, err = b.until(`"event":"sessions.changed"`, `"reset"`)
			}
			if err != nil {
				tb.Errorf("socket %d heard of no reset: %v", i, err)
			}
			heard[i] = time.Now()
		})
	}
	ready.Wait()
	c, err := Dial(g.URL(), token, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	told := time.Now()
	if _, err := c.Call("sessions.reset", map[string]any{"key": "shared"}, 30*time.Second); err != nil {
		tb.Fatal(err)
	}
	all.Wait()
	return slices.MaxFunc(heard, time.Time.Compare).Sub(told)
}

// speak sends messages at a rate for some time, each in a separate session, and waits for all
// answers. A slow gateway receives fewer, because a connection may have 64 calls in flight.
func speak(t *testing.T, g *Gateway, token string, perSecond int, length time.Duration) int {
	t.Helper()
	c, err := Dial(g.URL(), token, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var all sync.WaitGroup
	places := make(chan struct{}, 50)
	sent := 0
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		id := fmt.Sprintf("spoken-%d", sent)
		sent++
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": id, "message": "hello", "idempotencyKey": id}, 60*time.Second); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	all.Wait()
	return sent
}

// A connection that is slow to present a credential is closed by the deadlines: 10 s for the
// headers, 15 s for connect. Other clients connect meanwhile.
func TestSlowConnectionsWithoutACredentialAreClosedAndDelayNoOther(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	n := testrun.Size(150, 5000)
	g, token, before := calm(t, "")

	const slack = 5 * time.Second
	var (
		all    sync.WaitGroup
		places = make(chan struct{}, 128) // of those that are dialling
		most   [3]atomic.Int64
	)
	limits := []time.Duration{10 * time.Second, 15 * time.Second, 15 * time.Second}
	for i := range n {
		kind := i % 3
		all.Go(func() {
			places <- struct{}{}
			open, err := unauthenticated(g.addr(), kind)
			<-places
			if err != nil {
				t.Errorf("slow connection %d: %v", i, err)
				return
			}
			defer open.Close()
			began := time.Now()
			if err := trickle(open, kind, limits[kind]+2*slack); err != nil {
				t.Errorf("slow connection of kind %d: %v", kind, err)
				return
			}
			took := time.Since(began)
			if int64(took) > most[kind].Load() {
				most[kind].Store(int64(took))
			}
			if took > limits[kind]+slack {
				t.Errorf("a connection of kind %d was there for %s", kind, took)
			}
		})
	}
	stop := make(chan struct{})
	busy := probe(t, g, token, stop)
	honest, accepted := 0, 0
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		honest++
		if b, err := login(g.addr(), token); err == nil {
			accepted++
			_ = b.Close()
		}
	}
	close(stop)
	_, p99, _ := quantiles(busy())
	all.Wait()
	t.Logf("figure: %d slow connections: headers closed after at most %s, half a connect after %s, silence after %s; %d of %d honest clients accepted; calls p99 %s (before: %s)",
		n, time.Duration(most[0].Load()).Round(time.Millisecond), time.Duration(most[1].Load()).Round(time.Millisecond),
		time.Duration(most[2].Load()).Round(time.Millisecond), accepted, honest, p99, before)
	if accepted != honest {
		t.Errorf("%d of %d honest clients were accepted", accepted, honest)
	}
}

// unauthenticated opens a connection: kind 0 has sent half of the headers, kinds 1 and 2 are
// upgraded.
func unauthenticated(addr string, kind int) (*bare, error) {
	if kind > 0 {
		return upgrade(addr)
	}
	conn, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return nil, err
	}
	b := &bare{Conn: conn}
	_, err = b.Write([]byte("GET /ws HTTP/1.1\r\nHost: "))
	return b, err
}

// trickle sends a byte each second (kind 2: nothing) until the server ends the connection.
func trickle(b *bare, kind int, limit time.Duration) error {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		buf := make([]byte, 512)
		for {
			if _, err := b.Read(buf); err != nil {
				return
			}
		}
	}()
	defer func() { _ = b.Close(); <-gone }()
	if kind == 1 {
		if err := b.frame(fin|opText, 4096, []byte(`{"type":"req"`)); err != nil {
			return err
		}
	}
	tick, over := time.NewTicker(time.Second), time.NewTimer(limit)
	defer tick.Stop()
	defer over.Stop()
	_ = b.SetDeadline(time.Time{})
	for {
		select {
		case <-gone:
			return nil
		case <-over.C:
			return fmt.Errorf("it is still there after %s", limit)
		case <-tick.C:
			if kind < 2 {
				_, _ = b.Write([]byte("x")) // once it is closed, the reader reports that
			}
		}
	}
}

// All clients connect concurrently after the gateway died: all succeed quickly. A connection uses
// no database, so the database is not overloaded.
func TestAllClientsReconnectAtOnce(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		n := testrun.Size(500, 10_000)
		g := Install(t, database, manySockets).AtOnce()
		g.Start()
		token := g.Token()
		for _, b := range openAll(t, g, token, n) {
			defer b.Close()
		}
		g.Kill()
		g.Start()
		addr := g.addr()
		o := OpenOracle(t, g, database)
		pause(1500 * time.Millisecond) // those of the start are not counted; the server's own figures are up to a second old
		before := o.transactions(database)
		took := make([]time.Duration, n)
		var all sync.WaitGroup
		gun := make(chan struct{})
		for i := range n {
			all.Go(func() {
				<-gun
				var err error
				if took[i], err = comeBack(addr, token); err != nil {
					t.Errorf("client %d did not come in: %v", i, err)
				}
			})
		}
		close(gun)
		all.Wait()
		p50, p99, most := quantiles(took)
		pause(1500 * time.Millisecond)
		work := o.transactions(database) - before
		t.Logf("figure: %d clients at once: half after %s, 99%% after %s, all after %s: %.0f/s admitted; %d transactions meanwhile",
			n, p50, p99, most, float64(n)/most.Seconds(), work)
		if usual := int(40 * (most + 2*time.Second).Seconds()); work > usual+n/10 {
			t.Errorf("the database had %d transactions while %d clients came back; without them about %d", work, n, usual)
		}
	})
}

// A client that is connected makes no replica count the sessions, however many there are.
func TestConnectedClientCountsNoSessions(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	const rows, most = 5000, 1000
	database := testpg.DB(t)
	g := Install(t, database, "")
	g.Start()
	c, events := connect(t, g), watch(t, g)
	say(t, c, "agent:main:one", "first", "hello")
	if end := events.await(t, "first"); end.state != "final" {
		t.Fatalf("the turn ended %s", end)
	}
	o := OpenOracle(t, g, database)
	o.Rows(fmt.Sprintf(`INSERT INTO sessions SELECT (jsonb_populate_record(s, jsonb_build_object('key', key || '-' || n))).* FROM sessions s, generate_series(1, %d) n RETURNING 1::text`, rows))
	o.Rows("ANALYZE sessions") // otherwise the planner believes in one row until the server analyses the table
	if _, err := c.Call("sessions.subscribe", nil, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	read := func() int {
		return o.Count(`SELECT (seq_tup_read + COALESCE(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables WHERE relname = 'sessions'`)
	}
	pause(3 * time.Second) // the server's own figures are up to a second old
	window := func() int {
		before := read()
		pause(6 * time.Second)
		return read() - before
	}
	n := window()
	if n > most { // a job of the gateway itself, such as that of the search index, reads sessions every few minutes
		n = min(n, window())
	}
	t.Logf("figure: %d rows of %d sessions read in 6 s beside one client", n, rows)
	if n > most {
		t.Errorf("%d rows of sessions were read for a client that asks for nothing", n)
	}
}

// comeBack logs in repeatedly, for two minutes at most, and returns how long it took.
func comeBack(addr, token string) (time.Duration, error) {
	began := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		b, err := login(addr, token)
		if err == nil {
			return time.Since(began), b.Close()
		}
		if time.Since(began) > 2*time.Minute {
			return 0, err
		}
		pause(wait)
	}
}

// transactions returns how many the PostgreSQL server has committed in this database; 0 for SQLite,
// which does not count them.
func (o *Oracle) transactions(database string) int {
	if database == "" {
		return 0
	}
	return o.Count("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
}

// A client that disconnects during a turn loses nothing: the turn continues, and the answer is in
// the history and under its key.
func TestClientsThatDropInMidTurnFindTheirAnswers(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		n := testrun.Size(30, 1000)
		g := Install(t, database, manySockets+"agents: {main: {runner: echo, delay: 150ms, chunk: 4, chunk_delay: 10ms}}\n").AtOnce()
		g.Start()
		token := g.Token()
		var all sync.WaitGroup
		places := make(chan struct{}, 50)
		for i := range n {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				if err := sayAndDrop(g.addr(), token, i); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		all.Wait()
		c, err := Dial(g.URL(), token, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lost := 0
		for i := range n {
			if err := found(c, i); err != nil {
				lost++
				t.Errorf("client %d: %v", i, err)
			}
		}
		t.Logf("figure: %d clients dropped in the middle of a turn, %d answers lost", n, lost)
		OpenOracle(t, g, database).Check(15 * time.Second)
	})
}

func dropped(i int) (session, text, key string) {
	return fmt.Sprintf("drop-%d", i), fmt.Sprintf("answer number %d to a client that has left", i), fmt.Sprintf("drop-key-%d", i)
}

func sayAndDrop(addr, token string, i int) error {
	b, err := login(addr, token)
	if err != nil {
		return err
	}
	defer b.Close()
	if tcp, ok := b.Conn.(*net.TCPConn); ok && i%2 == 0 {
		_ = tcp.SetLinger(0) // half of them with a reset
	}
	session, text, key := dropped(i)
	if err := b.request("m", "chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": key}); err != nil {
		return err
	}
	_ = b.SetReadDeadline(time.Now().Add(60 * time.Second))
	if _, err := b.answer("m"); err != nil {
		return err
	}
	_, err = b.until(`"state":"delta"`)
	return err
}

// found checks for the answer as a reconnecting client does: it repeats the call and reads the
// history.
func found(c *Client, i int) error {
	session, text, key := dropped(i)
	var status struct{ Status string }
	for end := time.Now().Add(60 * time.Second); status.Status != "ok"; time.Sleep(20 * time.Millisecond) {
		if err := c.Into(&status, "chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": key}); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the turn is %s", status.Status)
		}
	}
	var history struct {
		Messages []struct {
			Role    string
			Content []struct{ Text string }
		}
	}
	if err := c.Into(&history, "chat.history", map[string]any{"sessionKey": session}); err != nil {
		return err
	}
	if len(history.Messages) != 2 || history.Messages[1].Role != "assistant" || history.Messages[1].Content[0].Text != text {
		return fmt.Errorf("the history is %+v", history.Messages)
	}
	return nil
}

// metric reads one number from /metrics on the main listener.
func (g *Gateway) metric(t *testing.T, token, name string) float64 {
	t.Helper()
	for line := range strings.SplitSeq(g.metrics(t, token), "\n") {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// metrics returns the metrics of the main listener for a read credential.
func (g *Gateway) metrics(t *testing.T, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s, %v", resp.Status, err)
	}
	return string(body)
}

// A counter that appears with its first event has no rate for it, so an alert or a board misses it.
// Each metric is on the page of metrics, which this test writes with UPDATE=1, and no label names a
// person, a conversation or a job.
func TestMetricsOfAlertsExistBeforeTheirFirstEvent(t *testing.T) {
	NeedsProcesses(t)
	c := openChatroom(t, "", "    allow: [7]\n", testtelegram.Config{})
	c.Start()
	c.Await("the first poll", c.Telegram.Polling)
	idle := c.metrics()
	for _, line := range []string{
		`laneway_messages_accepted_total{channel="telegram",duplicate="false"} 0`, `laneway_rpc_requests_total{code="ok",method="chat.send"} 0`,
		`laneway_commands_total{command="stop",ok="false"} 0`, `laneway_outbox_sends_total{channel="telegram",kind="reply",result="failed"} 0`,
		`laneway_telegram_updates_total{result="parked"} 0`, `laneway_ws_closed_total{reason="slow"} 0`, `laneway_budget_refusals_total{budget="job"} 0`,
		`laneway_messages_ended_total{lane="cron",outcome="failed",reason=""} 0`, `laneway_tokens_total{direction="output",lane="team"} 0`,
		`laneway_store_operation_seconds_count{operation="finish"} 0`, `laneway_cron_runs_total{outcome="ok",trigger="schedule"} 0`,
	} {
		if !strings.Contains(idle, line+"\n") {
			t.Errorf("before the first event there is no %s", line)
		}
	}
	late := []string{"laneway_http_requests_total"} // its label is the status
	for _, file := range []string{"../../deploy/prometheus/laneway.rules.yml", "../../deploy/grafana/laneway.json"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`laneway_[a-z_]+`).FindAllString(string(content), -1)
		if len(names) < 15 {
			t.Fatalf("%s names %d metrics", file, len(names))
		}
		for _, name := range names {
			if !slices.Contains(late, name) && !regexp.MustCompile(`(?m)^`+name+`[ {]`).MatchString(idle) {
				t.Errorf("%s names %s, which is not there before its first event", file, name)
			}
		}
	}
	c.Telegram.Say(anna, anna, "hello")
	c.Await("the answer", func() bool { return len(c.seen(anna)) > 0 })
	c.rest()
	if a := c.post("/v1/chat/completions", []byte(`{}`), map[string]string{"Authorization": "Bearer " + c.Token()}); a.Status != http.StatusBadRequest {
		t.Fatalf("%+v", a)
	}
	page := pageOfMetrics(c.metrics())
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("../../docs/metrics.md", []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if written, err := os.ReadFile("../../docs/metrics.md"); err != nil || string(written) != page {
		t.Errorf("docs/metrics.md is not (%v)\n%s\nrun this test with UPDATE=1", err, page)
	}
	known := strings.Fields("account channel code command direction disk duplicate go kind lane le method ok operation outcome policy reason result route state trigger version commit agent model budget")
	for _, m := range regexp.MustCompile(`(?m)^\| .* \| .* \| (.*) \| `).FindAllStringSubmatch(page, -1) {
		for label := range strings.FieldsSeq(strings.ReplaceAll(m[1], "`", "")) {
			if !slices.Contains(known, strings.TrimSuffix(label, ",")) && label != "labels" && label != "---" {
				t.Errorf("label %s is not in the closed set", label)
			}
		}
	}
}

// pageOfMetrics is docs/metrics.md for what a gateway has served.
func pageOfMetrics(text string) string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nPrometheus reads them at `/metrics`: see [Monitoring](monitoring.md), where the alerts are. " +
		"A test writes this page from what a gateway serves. Durations are in seconds; a histogram has `_bucket`, `_sum` and `_count`.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	kinds := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (laneway_\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		kinds[m[1]] = m[2]
	}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (laneway_\w+) (.+)$`).FindAllStringSubmatch(text, -1) {
		var labels []string
		if series := regexp.MustCompile(`(?m)^` + m[1] + `(?:_sum)?\{([^}]*)\}`).FindStringSubmatch(text); series != nil {
			for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series[1], -1) {
				labels = append(labels, "`"+l[1]+"`")
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m[1], kinds[m[1]], strings.Join(labels, ", "), strings.ReplaceAll(m[2], "|", `\|`))
	}
	return b.String()
}
