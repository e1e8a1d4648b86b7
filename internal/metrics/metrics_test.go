package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/socket"
	"laneway/internal/metrics"
	"laneway/internal/scheduler"
	"laneway/internal/usage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape sets every metric once and reads them as Prometheus does.
func scrape(t *testing.T) string {
	t.Helper()
	m := metrics.New("1.2.3", "abc")
	m.Watch(metrics.Source{
		Lanes: func() chat.LanesStatus {
			return chat.LanesStatus{Lanes: []chat.LaneStatus{{Name: "main", Capacity: 30, Active: 2, Waiting: 1, OldestWait: time.Second}}, Tracked: 3}
		},
		Outbox: func() int { return 4 }, TakenLong: func() int { return 2 }, Cron: func() cron.Summary {
			return cron.Summary{Jobs: 5, Running: 2, Paused: 1, Backlog: 3, OldestDue: time.Second}
		}, DatabaseUp: func() bool { return true }, DiskFree: func() map[string]uint64 { return map[string]uint64{"data": 12345} },
	})
	d := m.Dispatch()
	d.Accepted("web", false)
	d.Dropped("old")
	d.Ended("main", chat.OutcomeAnswered, "")
	d.TurnEnded("main", chat.OutcomeAnswered, time.Second, time.Millisecond)
	d.Tokens("main", 7, 3)
	d.Stored("accept", time.Second)
	d.Fenced("finish")
	d.Sent("telegram", "reply", "delivered")
	d.CommandRun("stop", true)
	d.LeaseLost()
	d.TakenOver(2)
	c := m.Cron()
	c.Ticked(time.Second, 1, true)
	c.Fired(cron.TriggerSchedule, time.Second)
	c.Ended(cron.TriggerSchedule, cron.RunOK)
	s := m.Scheduler()
	s.MessageRefused(scheduler.RefusedStale)
	s.TurnStuck("main")
	s.LaneUnknown()
	u := m.Usage(nil)
	u.Used("main", "large", chat.Usage{InputTokens: 10, CachedTokens: 4, OutputTokens: 3}, usage.Unit/2)
	u.Refused(usage.KindDay)
	g := m.Gateway()
	g.ConnOpened()
	g.ConnOpened()
	g.ConnClosed(socket.ClosedSlow)
	g.Request("health", "ok", time.Millisecond)
	g.HTTPRequest("/v1/models", 200, time.Second)
	g.AuthFailed("mismatch")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// scrapeIdle reads the metrics of a gateway before any event.
func scrapeIdle(t *testing.T) string {
	t.Helper()
	m := metrics.New("1.2.3", "abc")
	m.Cron()
	m.Usage(map[string]string{"main": "large"})
	m.Watch(metrics.Source{
		Lanes:  func() chat.LanesStatus { return chat.LanesStatus{Lanes: []chat.LaneStatus{{Name: "main"}}} },
		Outbox: func() int { return 0 }, Cron: func() cron.Summary { return cron.Summary{} }, DatabaseUp: func() bool { return true },
		DiskFree: func() map[string]uint64 { return map[string]uint64{"data": 1} }, TakenLong: func() int { return 0 },
	})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestEveryPromisedMetricIsThere(t *testing.T) {
	t.Parallel()
	text := scrape(t)
	for _, line := range []string{
		`laneway_build_info{commit="abc",go="`, `laneway_lane_capacity{lane="main"} 30`, `laneway_lane_active{lane="main"} 2`, `laneway_lane_waiting{lane="main"} 1`,
		`laneway_lane_unknown_total 1`, `laneway_queue_dropped_total{policy="old"} 1`, `laneway_runs_total{lane="main",outcome="answered"} 1`,
		`laneway_run_duration_seconds_sum{lane="main"} 1`, `laneway_ws_connections 1`, `laneway_ws_slow_closed_total 1`,
		`laneway_auth_failures_total{reason="mismatch"} 1`, `laneway_outbox_waiting 4`, `laneway_taken_long 2`, `laneway_db_up 1`,
		`laneway_cron_runs_total{outcome="ok",trigger="schedule"} 1`, `laneway_cron_start_lag_seconds_sum 1`, `laneway_cron_jobs 5`, `laneway_cron_running 2`,
		`laneway_cron_paused 1`, `laneway_cron_tick_seconds_sum 1`, `laneway_cron_tick_seconds_count 1`, `laneway_cron_backlog 3`, `laneway_cron_oldest_due_seconds 1`,
		`laneway_fenced_writes_total{operation="finish"} 1`, `laneway_lease_lost_total 1`,
		`laneway_tokens_total{direction="input",lane="main"} 7`, `laneway_tokens_total{direction="output",lane="main"} 3`, `laneway_disk_free_bytes{disk="data"} 12345`,
		`laneway_store_operation_seconds_sum{operation="accept"} 1`, `laneway_http_requests_total{code="200",route="/v1/models"} 1`,
		`laneway_model_tokens_total{agent="main",kind="input",model="large"} 6`, `laneway_model_tokens_total{agent="main",kind="cached",model="large"} 4`,
		`laneway_model_tokens_total{agent="main",kind="output",model="large"} 3`, `laneway_model_cost_total{agent="main",model="large"} 0.5`,
		`laneway_budget_refusals_total{budget="day"} 1`, `laneway_budget_refusals_total{budget="job"} 0`,
		`laneway_http_duration_seconds_sum{route="/v1/models"} 1`, `laneway_sessions_taken_over_total 2`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("missing: %s", line)
		}
	}
}

// A counter that appears with its first event has no rate for it, so an alert or a board misses it.
func TestTheSeriesOfKnownLabelsAreThereBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	m := metrics.New("1.2.3", "abc")
	m.Begin(metrics.Known{Channels: []string{"web", "telegram"}, Commands: []string{"stop"}, Methods: []string{"chat.send"}})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`laneway_messages_accepted_total{channel="web",duplicate="false"} 0`, `laneway_rpc_requests_total{code="ok",method="chat.send"} 0`,
		`laneway_commands_total{command="stop",ok="false"} 0`, `laneway_outbox_sends_total{channel="telegram",kind="reply",result="failed"} 0`,
		`laneway_telegram_updates_total{result="parked"} 0`, `laneway_ws_closed_total{reason="slow"} 0`,
		`laneway_messages_ended_total{lane="cron",outcome="failed",reason=""} 0`, `laneway_tokens_total{direction="output",lane="team"} 0`,
		`laneway_store_operation_seconds_count{operation="finish"} 0`,
	} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestLabelsNeverNameAPersonOrAConversation(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for name := range strings.FieldsSeq("lane outcome reason policy channel duplicate kind result command ok operation method code state version commit go le quantile trigger phase direction disk route agent model budget") {
		known[name] = true
	}
	for _, m := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(scrape(t), -1) {
		if !known[m[1]] {
			t.Errorf("label %s is not in the closed set", m[1])
		}
	}
}

// Every metric that the alerts and the board name exists, and those of alerts exist before their
// first event: the rate of a series that begins with its first event shows no increase.
func TestAlertsAndBoardNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	text, idle := scrape(t), scrapeIdle(t)
	late := []string{ // series that begin with the first event, because their labels are not known before
		"laneway_messages_accepted_total", "laneway_rpc_requests_total", "laneway_http_requests_total", "laneway_channel_connected",
	}
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
			if name == "laneway_channel_connected" {
				continue // one series for each configured channel
			}
			series := regexp.MustCompile(`(?m)^` + name + `[ {]`)
			if !series.MatchString(text) {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
			if !slices.Contains(late, name) && !series.MatchString(idle) {
				t.Errorf("%s of %s appears with its first event only", name, file)
			}
		}
	}
}

// Prometheus accepts the rules, and they fire only when they should.
func TestAlertsPassTheirOwnTests(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not here; it comes with Debian's prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "laneway.rules.yml"}, {"test", "rules", "laneway.test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "SUCCESS") {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
