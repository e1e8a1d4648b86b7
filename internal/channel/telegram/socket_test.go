package telegram_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"laneway/internal/channel/telegram"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testtelegram"
)

// TestOverSockets plays a conversation over real connections with the channel's own transport: connections are cut and reused.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	srv := testtelegram.New(testtelegram.Config{})
	srv.AddPrivate(anna, "Anna")
	ts := httptest.NewServer(srv)
	defer ts.Close()
	b := &bot{t: t, srv: srv, log: &logBuffer{}, seen: map[string]bool{}}
	var err error
	b.ch, err = telegram.New(
		telegram.Config{Token: srv.Token(), APIURL: ts.URL, Agent: "main", Allow: []int64{anna}, PollTimeout: 2 * time.Second},
		telegram.Deps{Records: sqlitetest.Open(t, sqlite.Config{})},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.ch.Run(run, b) }()

	for i, fault := range []testtelegram.Fault{{Delay: time.Millisecond}, {Reset: true}, {Cut: true}, {HTML: 502}} {
		srv.Break("getUpdates", fault)
		id := srv.Say(anna, anna, "hello")
		if err := srv.Await(ctx, func() bool { n := srv.Confirmed(); return len(n) == i+1 && n[i] == id }); err != nil {
			t.Fatalf("message %d was not confirmed: %v", i, err)
		}
	}
	wantTexts(t, "received", b.texts(), "hello", "hello", "hello", "hello")
	if _, err := b.send("1", to(anna, ""), "An **answer**."); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, "anna reads", srv.Texts(anna), "An answer.")
	end()
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}
