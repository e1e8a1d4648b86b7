package teste2e

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"
)

var metricsAddress = regexp.MustCompile(`"serving metrics" address=(127\.0\.0\.1:\d+)`)

// Profiles show internals; no gateway serves them by default, and none on the main listener.
func TestProfilesAreOnTheMetricsListenerAndOnlyOnRequest(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		setting := ""
		if on {
			setting = "pprof: true\n"
		}
		g := Install(t, "", setting, "--metrics-listen", "127.0.0.1:0")
		g.Start()
		at := metricsAddress.FindStringSubmatch(g.Output())
		if at == nil {
			t.Fatalf("the metrics listener is not named:\n%s", g.Output())
		}
		if code := status(t, "http://"+at[1]+"/metrics"); code != http.StatusOK {
			t.Errorf("/metrics: %d", code)
		}
		want := http.StatusNotFound
		if on {
			want = http.StatusOK
		}
		if code := status(t, "http://"+at[1]+"/debug/pprof/"); code != want {
			t.Errorf("pprof %t: the metrics listener answers %d, want %d", on, code, want)
		}
		if code := status(t, g.URL()+"/debug/pprof/"); code != http.StatusNotFound {
			t.Errorf("pprof %t: the main listener answers %d", on, code)
		}
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
