package teste2e

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkSockets opens b.N authenticated sockets to the real gateway, and publishes one event to all of them. It reports memory per
// socket, connects per second, and the time until the last socket has the event. The clients run on the same machine.
func BenchmarkSockets(b *testing.B) {
	g := Install(b, "", manySockets)
	g.Start()
	token := g.Token()
	connect(b, g) // the cost of only the first connection must not be counted
	before := residentKB(b, g)
	b.ResetTimer()
	sockets := openAll(b, g, token, b.N)
	opened := b.Elapsed()
	b.StopTimer()
	each := float64(residentKB(b, g)-before) / float64(b.N)
	took := broadcast(b, g, token, sockets)
	b.ReportMetric(each, "KB/socket")
	b.ReportMetric(float64(b.N)/opened.Seconds(), "connects/s")
	b.ReportMetric(float64(took.Microseconds())/1000, "broadcast_ms")
}

const (
	streams   = 200
	tokenGap  = 20 * time.Millisecond
	stampSize = 12 // characters of a token: microseconds since the start, and a space
)

// BenchmarkStreams streams b.N tokens in each of 200 concurrent sessions, 50 a second, from a model over HTTP through the real gateway to
// 200 sockets. A token contains the time at which the model wrote it, so every delta shows the age of its text. The gateway deliberately
// waits up to 40 ms for more text of a run.
func BenchmarkStreams(b *testing.B) {
	base := time.Now()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { speakTokens(w, r, base, b.N) }))
	b.Cleanup(model.Close)
	g := Install(b, "", fmt.Sprintf("agents: {main: {runner: openai, model: stamps, base_url: %q, retries: 0}}\nlanes: {main: %d}\n%s", model.URL, streams, manySockets))
	g.Start()
	sockets := openAll(b, g, g.Token(), streams)
	ages := make([][]time.Duration, streams)
	var all sync.WaitGroup
	b.ResetTimer()
	for i, s := range sockets {
		all.Go(func() {
			id := "stream-" + strconv.Itoa(i)
			err := s.request("m", "chat.send", map[string]any{"sessionKey": id, "message": "go", "idempotencyKey": id})
			if err == nil {
				ages[i], err = listen(s, base)
			}
			if err != nil || len(ages[i]) != b.N {
				b.Errorf("stream %d: %d of %d tokens came with deltas: %v", i, len(ages[i]), b.N, err)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	var list []time.Duration
	for _, a := range ages {
		list = append(list, a...)
	}
	report(b, "age", list)
}

// speakTokens answers like a model that generates n tokens, one each tokenGap.
func speakTokens(w http.ResponseWriter, r *http.Request, base time.Time, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(tokenGap)
	defer tick.Stop()
	for range n {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%0*d \"}}]}\n\n", stampSize-1, time.Since(base).Microseconds())
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

// listen reads a run to its end and returns the age of each token when it arrived in a delta. The last ones may arrive only in the final
// answer.
func listen(s *bare, base time.Time) ([]time.Duration, error) {
	_ = s.SetReadDeadline(time.Now().Add(2 * time.Minute))
	var ages []time.Duration
	for {
		data, err := s.next()
		if err != nil {
			return ages, err
		}
		at := time.Since(base)
		if !bytes.Contains(data, []byte(`"event":"chat"`)) {
			continue
		}
		text := string(data)
		if strings.Contains(text, `"state":"error"`) {
			return ages, fmt.Errorf("the run failed: %s", text)
		}
		stamps, final := member(text, `"deltaText":"`), strings.Contains(text, `"state":"final"`)
		if final {
			stamps = member(text, `"text":"`)
			stamps = stamps[min(len(stamps), len(ages)*stampSize):]
		}
		for stamp := range strings.FieldsSeq(stamps) {
			us, err := strconv.ParseInt(stamp, 10, 64)
			if err != nil {
				return ages, err
			}
			ages = append(ages, at-time.Duration(us)*time.Microsecond)
		}
		if final {
			return ages, nil
		}
	}
}

// member returns the text after a key, up to the quote; the tokens contain none.
func member(frame, key string) string {
	_, rest, _ := strings.Cut(frame, key)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
