//go:build compat

package testcompat

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"laneway/internal/teste2e"
	"laneway/internal/testpg"
)

// prometheusServer is an unmodified Prometheus that scrapes gateways.
type prometheusServer struct {
	t   *testing.T
	url string
}

func startPrometheus(t *testing.T, targets []string) prometheusServer {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("this test needs Prometheus: apt-get install prometheus: %v", err)
	}
	rules, err := filepath.Abs("../../deploy/prometheus/laneway.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: laneway\n  static_configs:\n  - targets: [%s]\n",
		rules, strings.Join(targets, ", "))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	await(t, address, ended, &said)
	return prometheusServer{t, "http://" + address}
}

// values evaluates an expression now and returns how many series have a value.
func (p prometheusServer) values(expr string) (n int) {
	p.t.Helper()
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var answer struct {
		Status string
		Error  string
		Data   struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		p.t.Fatalf("%s: %v %s", expr, err, body)
	}
	for _, r := range answer.Data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

// ruleExpressions and boardExpressions return the expressions of the files in deploy.
func ruleExpressions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/laneway.rules.yml")
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	return all
}

func boardExpressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/laneway.json")
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// comparison matches the comparison in the expression of an alert.
var comparison = regexp.MustCompile(` (==|>|<) [0-9.e]+`)

// quietRules have no series in the gateways of this test.
var quietRules = map[string]string{"LanewayChannelDown": "the gateways have no channel of a chat network"}

// A real Prometheus scrapes two replicas under load. Every expression of the board has a value. No
// alert fires, but every one has a value without its comparison.
func TestPrometheusScrapesTwoReplicasUnderLoad(t *testing.T) {
	url := testpg.DB(t)
	var targets []string
	var gateways []*teste2e.Gateway
	for range 2 {
		g := installGateway(t, url, secrets+"limits: {chat: 0, requests: 0, cron_writes: 0}\nagents: {main: {runner: echo}}\n", "--metrics-listen", "127.0.0.1:0")
		g.Start()
		// The replicas share a token from the configuration; the load generator reads it from the
		// file of a generated token.
		if err := os.WriteFile(filepath.Join(g.Dir, "data", "token"), []byte(adminToken), 0o600); err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`serving metrics" address=(127\.0\.0\.1:\d+)`).FindStringSubmatch(g.Output())
		if m == nil {
			t.Fatalf("the gateway does not name the address of its metrics:\n%s", g.Output())
		}
		targets, gateways = append(targets, m[1]), append(gateways, g)
	}
	p := startPrometheus(t, targets)
	if _, err := connectTo(t, gateways[0]).Call("cron.add", map[string]any{
		"name": "each second", "schedule": map[string]any{"kind": "every", "everyMs": 1000}, "sessionTarget": "isolated",
		"payload": map[string]any{"kind": "agentTurn", "message": "hello"},
	}, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	for end, i := time.Now().Add(20*time.Second), 0; time.Now().Before(end); i++ {
		for n, g := range gateways {
			if a := g.Complete(fmt.Sprintf("agent:main:load-%d", (i+n)%7), "hello"); a.Status != http.StatusOK {
				t.Fatalf("the load: %d %s %v", a.Status, a.Body, a.Err)
			}
		}
	}
	if n := p.values("up == 1"); n != 2 {
		t.Fatalf("Prometheus reaches %d of 2 replicas", n)
	}
	for _, expr := range boardExpressions(t) {
		if n := p.values(expr); n == 0 {
			t.Errorf("the board has no value for %s", expr)
		}
	}
	for alert, expr := range ruleExpressions(t) {
		if n := p.values(expr); n != 0 {
			t.Errorf("the alarm %s is raised by healthy gateways (%d series): %s", alert, n, expr)
		}
		bare, why := comparison.ReplaceAllString(expr, ""), quietRules[alert]
		if bare == expr {
			t.Errorf("the alarm %s compares with nothing: %s", alert, expr)
		}
		switch n := p.values(bare); {
		case n == 0 && why == "":
			t.Errorf("the alarm %s looks at nothing: %s", alert, bare)
		case n == 0:
			t.Logf("silent when healthy: %s (%s)", alert, why)
		}
	}
}

func connectTo(t *testing.T, g *teste2e.Gateway) *teste2e.Client {
	t.Helper()
	c, err := teste2e.Dial(g.URL(), adminToken, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
