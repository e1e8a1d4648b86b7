package metrics_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every metric that the alerts and the board name exists, and those of alerts exist before their first event: the rate of a series that begins
// with its first event shows no increase.
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
