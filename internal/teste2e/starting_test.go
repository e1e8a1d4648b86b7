package teste2e

import (
	"database/sql"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// freePort returns an address on which no process listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A machine boots, and the database comes up after the gateway.
func TestGatewayStartsBeforeItsDatabase(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	line := cuttable(t, database)
	line.cut()
	addr := freePort(t)
	g := Install(t, database, "agents: {main: {runner: echo}}\n", "--listen", addr)
	g.env = append(g.env, "LANEWAY_DATABASE_URL="+line.url)
	started := make(chan error, 1)
	go func() { started <- g.TryStart() }()
	status := func(path string) int {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	testrun.Eventually(t, "the gateway waits", func() bool {
		return status("/healthz") == http.StatusOK && strings.Contains(g.Output(), "waiting for the database")
	})
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz without a database: %d, want 503", got)
	}
	line.mend()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the gateway is ready", func() bool { return status("/readyz") == http.StatusOK })
	if n := strings.Count(g.Output(), "waiting for the database"); n != 1 {
		t.Errorf("%d lines about one cause, want 1", n)
	}
}

// wantStart is the refusal of a connect during the start.
type wantStart struct {
	message string
	details map[string]any
	after   int // milliseconds
	close   int
}

// Another session holds the schema, like a replica that migrates. Until it releases it, every connect is refused as retryable, every other
// request with 503, and the probes report alive and not ready.
func TestAClientBeforeTheStoreIsOpenLearnsThatTheGatewayStarts(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	held, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = held.ExecContext(t.Context(), "LOCK TABLE laneway_migrations IN ACCESS EXCLUSIVE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	addr := freePort(t)
	g := Install(t, database, "token: owner-token-0123456789-abcdefghijk\n", "--listen", addr)
	started := make(chan error, 1)
	go func() { started <- g.TryStart() }()
	get := func(path string) (int, http.Header) {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0, nil
		}
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	testrun.Eventually(t, "the process answers", func() bool { status, _ := get("/healthz"); return status == http.StatusOK })
	pause(2500 * time.Millisecond) // periodic work of the gateway runs meanwhile
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/models": 503, "/nothing": 503, "/dashboard": 503, "/telegram/webhook/default": 503} {
		if status, header := get(path); status != want || (want == 503 && header.Get("Retry-After") != "1") {
			t.Errorf("%s while it starts: %d, Retry-After %q; want %d", path, status, header.Get("Retry-After"), want)
		}
	}
	want := wantStart{"gateway starting", map[string]any{"reason": "startup-sidecars"}, 500, websocket.CloseTryAgainLater}
	for _, token := range []string{"owner-token-0123456789-abcdefghijk", "a token that only the store knows"} {
		ws, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+"/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		err = ws.WriteJSON(map[string]any{"type": "req", "id": "c", "method": "connect", "params": map[string]any{
			"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": token},
			"client": map[string]string{"id": "e2e", "version": "1", "platform": "test", "mode": "test"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var f struct {
			ID    string
			Error *struct {
				WireError
				RetryAfterMs int `json:"retryAfterMs"`
			}
		}
		for f.ID == "" && err == nil {
			err = ws.ReadJSON(&f)
		}
		if e := f.Error; err != nil || e == nil || e.Message != want.message || e.RetryAfterMs != want.after || e.Retryable != (want.after > 0) ||
			(want.details != nil && (e.Code != "UNAVAILABLE" || !maps.Equal(e.Details, want.details))) {
			t.Errorf("connect while it starts: %+v, %v", f.Error, err)
		}
		var closed *websocket.CloseError
		if err := readToEnd(ws); !errors.As(err, &closed) || closed.Code != want.close {
			t.Errorf("the socket was closed with %v, want %d", err, want.close)
		}
		_ = ws.Close()
	}
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c, err := Dial(g.URL(), "owner-token-0123456789-abcdefghijk", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if !strings.HasSuffix(g.URL(), addr) {
		t.Errorf("it listens on %s, not on %s", g.URL(), addr)
	}
	if status, _ := get("/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
}
