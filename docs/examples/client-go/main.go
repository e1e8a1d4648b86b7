// Command client-go sends one message and prints the answer while it is written, even when the
// gateway restarts meanwhile:
//
//	LANEWAY_TOKEN=… go run ./docs/examples/client-go ws://127.0.0.1:18790/ws "hello"
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// frame is a response or an event, with the members that this client reads.
type frame struct {
	ID, Event string
	OK        bool
	Error     struct {
		Message   string
		Retryable bool
	}
	Payload struct {
		Status, RunID, State, ErrorMessage string
		Message                            message
		Messages                           []message
	}
}

type message struct {
	RunID, Role string
	Content     []struct{ Text string }
}

func main() {
	key := rand.Text() // the same in every attempt, so the message runs once
	for shown := ""; ; time.Sleep(time.Second) {
		_ = talk(os.Args[1], os.Args[2], key, &shown) // it failed because the gateway restarts, or the network is away
	}
}

func talk(url, text, key string, shown *string) error {
	socket, _, err := websocket.DefaultDialer.Dial(url, nil)
	if err != nil {
		return err
	}
	defer socket.Close()
	var f frame
	next := func() error { f = frame{}; return socket.ReadJSON(&f) }
	call := func(method string, params map[string]any) {
		if err == nil {
			err = socket.WriteJSON(map[string]any{"type": "req", "id": method, "method": method, "params": params})
		}
		for f.ID = ""; err == nil && f.ID != method; {
			err = next()
		}
		if err == nil && !f.OK {
			if err = errors.New(f.Error.Message); !f.Error.Retryable {
				log.Fatal(err)
			}
		}
	}
	err = next() // the event connect.challenge
	call("connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "auth": map[string]any{"token": os.Getenv("LANEWAY_TOKEN")}, "scopes": []string{"operator.read", "operator.write"},
		"client": map[string]any{"id": "example", "version": "1.0", "platform": "go", "mode": "cli"},
	})
	call("sessions.subscribe", map[string]any{}) // events of a run that an earlier connection began
	call("chat.send", map[string]any{"sessionKey": "example", "message": text, "idempotencyKey": key})
	if s := f.Payload.Status; err == nil && s != "started" && s != "in_flight" {
		call("chat.history", map[string]any{"sessionKey": "example"}) // it ended while we were away
		whole := ""
		for _, m := range f.Payload.Messages {
			if m.RunID == key && m.Role == "assistant" {
				whole = m.Content[0].Text
			}
		}
		if err == nil {
			show(map[bool]string{true: "final", false: s}[s == "ok"], whole, shown)
		}
	}
	for err == nil {
		if err = next(); err == nil && f.Event == "chat" && f.Payload.RunID == key {
			whole := f.Payload.ErrorMessage
			if len(f.Payload.Message.Content) > 0 {
				whole = f.Payload.Message.Content[0].Text
			}
			show(f.Payload.State, whole, shown)
		}
	}
	return err
}

// show prints what is new of the answer.
func show(state, whole string, shown *string) {
	rest, continues := strings.CutPrefix(whole, *shown)
	if !continues {
		rest = "\n" + whole
	}
	fmt.Print(rest)
	*shown = whole
	if state != "delta" {
		fmt.Println()
		os.Exit(map[bool]int{true: 0, false: 1}[state == "final"])
	}
}
