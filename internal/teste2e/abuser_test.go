package teste2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// mostConns is the number of connections of one stage, abuseInFlight the unanswered calls of
	// each, and abusePace the interval of the calls of one connection: 200 a second, which is the
	// default of limits.requests.
	mostConns     = 32
	abuseInFlight = 64
	abusePace     = 5 * time.Millisecond
)

// tally counts the answers of a stage.
type tally struct {
	sent, ok atomic.Int64

	mu      sync.Mutex
	refused map[string]int
	lost    []error // connections that ended before the test closed them
}

func (c *tally) refuse(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]int{}
	}
	c.refused[code]++
}

func (c *tally) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, err)
}

// abuser is one connection that calls as often as it may.
type abuser struct {
	*bare

	counts *tally
	places chan struct{} // unanswered calls
	gone   chan struct{} // closed when the reader has ended
	closed atomic.Bool

	mu      sync.Mutex
	pending map[string]bool
	header  [14]byte
}

// enlist connects with a credential and requests one scope.
func enlist(addr, token, scope string, counts *tally) (*abuser, error) {
	b, err := upgrade(addr)
	if err != nil {
		return nil, err
	}
	err = b.request("c", "connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": token}, "scopes": []string{scope},
		"client": map[string]string{"id": "abuse", "version": "1", "platform": "test", "mode": "test"},
	})
	if err == nil {
		_, err = b.answer("c")
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	_ = b.SetDeadline(time.Time{})
	a := &abuser{bare: b, counts: counts, places: make(chan struct{}, abuseInFlight), gone: make(chan struct{}), pending: map[string]bool{}}
	go a.read()
	return a, nil
}

// attack calls until stop is closed or the connection has ended: next returns the method and the
// params of call n. It returns the n with which to continue.
func (a *abuser) attack(stop <-chan struct{}, n int, next func(n int) (method, params string)) int {
	tick := time.NewTicker(abusePace)
	defer tick.Stop()
	for ; ; n++ {
		select {
		case a.places <- struct{}{}:
		case <-stop:
			return n
		case <-a.gone:
			return n
		}
		select {
		case <-tick.C:
		case <-stop:
			return n
		case <-a.gone:
			return n
		}
		method, params := next(n)
		if err := a.send(fmt.Sprint("n", n), method, params); err != nil {
			return n + 1 // the reader reports the reason
		}
		a.counts.sent.Add(1)
	}
}

// send writes a request in a frame whose mask is zero, which costs the client no work.
func (a *abuser) send(id, method, params string) error {
	a.mu.Lock()
	a.pending[id] = true
	a.mu.Unlock()
	head := `{"type":"req","id":"` + id + `","method":"` + method + `","params":`
	n := len(head) + len(params) + 1
	frame := append(a.header[:0], fin|opText)
	switch {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	frame = append(frame, 0, 0, 0, 0)
	parts := net.Buffers{frame, []byte(head), []byte(params), []byte("}")}
	_, err := parts.WriteTo(a.Conn)
	return err
}

// read counts answers until the connection ends. Events are read and dropped.
func (a *abuser) read() {
	defer close(a.gone)
	var buf []byte
	for {
		kind, data, err := a.nextInto(buf)
		buf = data[:0]
		switch {
		case err != nil:
			if !a.closed.Load() {
				a.counts.lose(err)
			}
			return
		case kind == opText:
			a.count(data)
		}
	}
}

// nextInto is [bare.next] with a reused buffer, because this client reads gigabytes.
func (a *abuser) nextInto(buf []byte) (kind byte, data []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(a.r, head[:2]); err != nil {
		return 0, buf, err
	}
	n := uint64(head[1] & 0x7f)
	switch n {
	case 126:
		_, err = io.ReadFull(a.r, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:4]))
	case 127:
		_, err = io.ReadFull(a.r, head[2:10])
		n = binary.BigEndian.Uint64(head[2:10])
	}
	if err != nil {
		return 0, buf, err
	}
	if uint64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(a.r, buf); err != nil {
		return 0, buf, err
	}
	switch kind = head[0] & 0x0f; kind {
	case opPing:
		err = a.frame(fin|0xA, len(buf), buf)
	case opClose:
		closed := &closedError{}
		if n >= 2 {
			closed.code, closed.text = int(binary.BigEndian.Uint16(buf)), string(buf[2:])
		}
		err = closed
	}
	return kind, buf, err
}

// count counts an answer by its first members, because the rest may have megabytes.
func (a *abuser) count(data []byte) {
	rest, is := bytes.CutPrefix(data, []byte(`{"type":"res","id":"`))
	if !is {
		return
	}
	id, rest, _ := bytes.Cut(rest, []byte(`"`))
	a.mu.Lock()
	first := a.pending[string(id)] // agent has two answers
	delete(a.pending, string(id))
	a.mu.Unlock()
	if !first {
		return
	}
	if bytes.HasPrefix(rest, []byte(`,"ok":true`)) {
		a.counts.ok.Add(1)
	} else {
		var r Response
		if err := json.Unmarshal(data, &r); err != nil || r.Error == nil {
			a.counts.refuse("no answer at all")
		} else {
			a.counts.refuse(finer(r.Error))
		}
	}
	<-a.places
}

// finer returns the most specific code of a refusal.
func finer(e *WireError) string {
	if code, is := e.Details["code"].(string); is {
		return code
	}
	return e.Code
}

// settle waits until every call is answered, for limit at most.
func (a *abuser) settle(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	for range abuseInFlight {
		select {
		case a.places <- struct{}{}:
		case <-a.gone:
			return
		case <-t.C:
			return
		}
	}
}

// leave closes the connection and waits for its reader.
func (a *abuser) leave() {
	a.closed.Store(true)
	_ = a.Close()
	<-a.gone
}

// The credentials of the stages. All see only their own data; each is the smallest that may call
// the method and can own data that the method reads.
const (
	abuseReader = "abuse-read"
	abuseWriter = "abuse-write" // owns the sessions
	abuseAdmin  = "abuse-admin" // owns the jobs
)

// The maximum sizes of a text and a job.
const (
	largestText    = 262_144
	largestJobText = 65_536
)

// world is the data of the credentials: sessions of the writer, jobs of the admin. Sizes depend on
// the length of the test.
type world struct {
	big       string   // the session with as many entries of the largest size as one answer can request
	sessions  []string // sessions with one message
	victims   []string // sessions of the admin
	jobs      []string // ids of jobs with the largest text
	removable []string // the same, for the methods that remove
	backfill  string   // a job that can be run for the past
	stage     int      // keys of messages are new in each stage
	sleep     time.Duration
	huge      string // JSON of a text of the maximum size
	hugeJob   string // JSON of the largest text of a job
	deep      string // JSON of nearly the maximum depth of a frame, for a param that is ignored
	unmatched string // JSON of the longest query that matches nothing
}

// abuseCall builds the params of call n of one connection.
type abuseCall struct {
	// as is the credential; the connection requests only the scope of the method.
	as string
	// last orders a method after those that need what it removes.
	last   bool
	params func(w *world, conn, n int) string
}

func same(params string) func(*world, int, int) string {
	return func(*world, int, int) string { return params }
}

func pick(list []string, conn, n int) string { return list[(n*mostConns+conn)%len(list)] }

// abuseCalls are the most costly valid calls of every published method. The test fails for a method
// without a row.
func abuseCalls() map[string]abuseCall {
	calls := map[string]abuseCall{
		"health":           {abuseReader, false, same(`{"probe":true,"extended":true}`)},
		"status":           {abuseReader, false, same(`{}`)},
		"agents.list":      {abuseReader, false, same(`{}`)},
		"commands.list":    {abuseReader, false, same(`{"scope":"both","includeArgs":true}`)},
		"channels.status":  {abuseReader, false, same(`{"probe":true}`)},
		"lanes.status":     {abuseWriter, false, same(`{}`)},
		"scheduler.status": {abuseAdmin, false, same(`{}`)},
		"question.list":    {abuseReader, false, same(`{}`)},
		"taskSuggestions.list": {abuseReader, false, func(w *world, _, _ int) string {
			return `{"sessionKey":` + quoted(w.big) + `}`
		}},
		"plugin.approval.list": {abuseReader, false, same(`{}`)},
		"usage.status":         {abuseReader, false, same(`{}`)},
		"usage.list":           {abuseReader, false, same(`{"from":"2026-01-01","to":"2026-04-10","by":"model","limit":1000}`)},
	}
	maps.Copy(calls, sessionAbuses())
	maps.Copy(calls, cronAbuses())
	maps.Copy(calls, pairingAbuses())
	return calls
}

func sessionAbuses() map[string]abuseCall {
	list := func(w *world, _, n int) string {
		if n%2 == 0 {
			return `{"limit":200,"includeLastMessage":true,"includeDerivedTitles":true,"label":` + w.deep + `,"search":` + w.unmatched + `}`
		}
		return `{"limit":200,"includeLastMessage":true,"includeDerivedTitles":true}`
	}
	return map[string]abuseCall{
		"chat.history": {abuseWriter, false, func(w *world, _, n int) string {
			tail := []string{`"limit":1000,"maxChars":1`, `"limit":1000,"maxChars":500000`, `"limit":1000,"maxChars":1,"cursor":"m:0"`, `"limit":1000,"offset":10`}
			return `{"sessionKey":` + quoted(w.big) + `,` + tail[n%len(tail)] + `}`
		}},
		"sessions.list":        {abuseWriter, false, list},
		"sessions.subscribe":   {abuseWriter, false, list},
		"sessions.unsubscribe": {abuseWriter, false, same(`{}`)},
		"toc.list":             {abuseWriter, false, func(*world, int, int) string { return `{"level":"day","limit":100,"offset":1000000}` }},
		"sessions.search":      {abuseWriter, false, func(*world, int, int) string { return `{"query":"a x","limit":100,"maxChars":1000}` }},
		"sessions.describe": {abuseWriter, false, func(w *world, _, _ int) string {
			return `{"key":` + quoted(w.big) + `,"includeLastMessage":true,"includeDerivedTitles":true}`
		}},
		"agent": {abuseWriter, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"message":%s,"idempotencyKey":"agent-%d-%d-%d","sessionKey":"agent:main:a-%d-%d","lane":"cron","timeout":0}`, w.message(n), w.stage, conn, n, conn, n)
		}},
		"chat.send": {abuseWriter, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"message":%s,"idempotencyKey":"send-%d-%d-%d","sessionKey":"agent:main:c-%d-%d","timeoutMs":86400000}`, w.message(n), w.stage, conn, n, conn, n)
		}},
		"chat.abort": {abuseWriter, false, func(w *world, conn, n int) string {
			return `{"sessionKey":` + quoted(pick(w.sessions, conn, n)) + `,"all":true}`
		}},
		"needs.list":     {abuseWriter, false, same(`{}`)},
		"runs.list":      {abuseWriter, false, same(`{"state":"ended","limit":200}`)},
		"runs.get":       {abuseWriter, false, func(w *world, conn, n int) string { return `{"id":` + quoted(pick(w.sessions, conn, n)) + `}` }},
		"questions.list": {abuseWriter, false, same(`{"limit":200}`)},
		"questions.answer": {abuseWriter, false, func(w *world, conn, n int) string {
			return `{"id":` + quoted(pick(w.sessions, conn, n)) + `,"option":1}`
		}},
		"tasks.list": {abuseWriter, false, func(w *world, _, _ int) string { return `{"limit":200,"sessionKey":` + quoted(w.big) + `}` }},
		"tasks.get":  {abuseWriter, false, func(w *world, conn, n int) string { return `{"id":` + quoted(pick(w.sessions, conn, n)) + `}` }},
		"tasks.stop": {abuseWriter, false, func(w *world, conn, n int) string { return `{"id":` + quoted(pick(w.sessions, conn, n)) + `}` }},
		"wake": {abuseWriter, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"mode":"now","text":%s,"sessionKey":"agent:main:w-%d-%d"}`, w.hugeJob, conn, n)
		}},
		"sessions.reset": {abuseAdmin, true, func(w *world, conn, n int) string {
			return `{"key":` + quoted(pick(w.victims, conn, n)) + `}`
		}},
		"sessions.delete": {abuseAdmin, true, func(w *world, conn, n int) string {
			return `{"key":` + quoted(pick(w.victims, conn, n)) + `}`
		}},
	}
}

// message returns a text of the maximum size, or one that occupies a slot for a while.
func (w *world) message(n int) string {
	if n%2 == 0 {
		return w.huge
	}
	return `"sleep ` + w.sleep.String() + `"`
}

func cronAbuses() map[string]abuseCall {
	job := func(members string) func(*world, int, int) string {
		return func(w *world, conn, n int) string { return `{"id":` + quoted(pick(w.jobs, conn, n)) + members + `}` }
	}
	return map[string]abuseCall{
		"cron.status": {abuseAdmin, false, same(`{}`)},
		"cron.list": {abuseAdmin, false, func(w *world, _, n int) string {
			if n%2 == 0 {
				return `{"limit":200,"extended":true,"includeDisabled":true,"includeSystem":true,"sortBy":"name","query":` + w.unmatched + `}`
			}
			return `{"limit":200,"extended":true,"includeDisabled":true,"includeSystem":true,"sortBy":"name"}`
		}},
		"cron.get":     {abuseAdmin, false, job(`,"extended":true`)},
		"cron.explain": {abuseAdmin, false, job(`,"fromMs":1700000000000,"untilMs":1700093600000`)},
		"cron.preview": {abuseAdmin, false, func(_ *world, _, n int) string {
			expr := []string{"59 59 23 29 2 *", "0 0 0 29 2 1", "59 59 23 31 12 7"}[n%3]
			return `{"count":100,"jitterMs":3600000,"schedule":{"kind":"cron","expr":"` + expr + `","tz":"Pacific/Apia"}}`
		}},
		"cron.runs": {abuseAdmin, false, func(w *world, _, n int) string {
			if n%2 == 0 {
				return `{"limit":200,"scope":"all","extended":true,"includeActive":true,"query":` + w.unmatched + `}`
			}
			return `{"limit":200,"scope":"all","extended":true,"includeActive":true,"statuses":["ok","error","skipped","missed","cancelled","interrupted"]}`
		}},
		"cron.cancel": {abuseAdmin, false, job(`,"reason":"because"`)},
		"cron.add": {abuseAdmin, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"name":"added %d %d","sessionTarget":"isolated","wakeMode":"now","schedule":{"kind":"cron","expr":"0 0 1 1 *","tz":"UTC"},`+
				`"payload":{"kind":"agentTurn","message":%s}}`, conn, n, w.hugeJob)
		}},
		"cron.create": {abuseAdmin, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"name":"created %d %d","schedule":{"kind":"cron","expr":"0 0 1 1 *","tz":"UTC"},"message":%s}`, conn, n, w.hugeJob)
		}},
		"cron.update": {abuseAdmin, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"id":%s,"patch":{"description":"change %d","payload":{"kind":"agentTurn","message":%s}}}`, quoted(pick(w.jobs, conn, n)), n, w.hugeJob)
		}},
		"cron.pause":  {abuseAdmin, false, job(`,"note":` + quoted(strings.Repeat("because ", 60)))},
		"cron.resume": {abuseAdmin, false, job(``)},
		"cron.toggle": {abuseAdmin, false, func(w *world, conn, n int) string {
			return fmt.Sprintf(`{"id":%s,"enabled":%v}`, quoted(pick(w.jobs, conn, n)), n%2 == 0)
		}},
		"cron.run": {abuseAdmin, false, job(`,"mode":"force"`)},
		"cron.backfill": {abuseAdmin, true, func(w *world, _, n int) string {
			return fmt.Sprintf(`{"id":%s,"fromMs":%d,"toMs":%d,"maxRuns":1000,"force":true}`, quoted(w.backfill), 1_700_000_000_000+n*60_000_000, 1_700_060_000_000+n*60_000_000)
		}},
		"cron.remove": {abuseAdmin, true, func(w *world, conn, n int) string {
			return `{"id":` + quoted(pick(w.removable, conn, n)) + `,"cancelRunning":true}`
		}},
		"cron.delete": {abuseAdmin, true, func(w *world, conn, n int) string { return `{"id":` + quoted(pick(w.removable, conn, n)) + `}` }},
	}
}

func pairingAbuses() map[string]abuseCall {
	const where = `"channel":"telegram","accountId":"default"`
	return map[string]abuseCall{
		"channels.pairing.list":    {abuseAdmin, false, same(`{"extended":true}`)},
		"channels.pairing.approve": {abuseAdmin, false, same(`{` + where + `,"code":"ABCDEFGH"}`)},
		"channels.pairing.dismiss": {abuseAdmin, false, same(`{` + where + `,"requestId":"none"}`)},
		"channels.pairing.revoke":  {abuseAdmin, false, same(`{` + where + `,"senderId":"7"}`)},
	}
}

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// abuseOrder returns every published method with its row: first methods that read, last those that
// remove data.
func abuseOrder(t *testing.T) []publishedMethod {
	t.Helper()
	calls, methods := abuseCalls(), publishedMethods(t)
	names := map[string]bool{}
	for _, m := range methods {
		names[m.Name] = true
		if calls[m.Name].params == nil {
			t.Errorf("%s is in the table of methods and has no row in abuseCalls: add its most costly legal call", m.Name)
		}
	}
	for name := range calls {
		if !names[name] {
			t.Errorf("abuseCalls has a row for %s, which is no method", name)
		}
	}
	rank := func(m publishedMethod) int {
		n := slices.Index([]string{"operator.read", "operator.write", "operator.admin"}, m.Scope)
		if calls[m.Name].last {
			n = 3
		}
		return n
	}
	slices.SortStableFunc(methods, func(a, b publishedMethod) int { return rank(a) - rank(b) })
	return methods
}

// TestEveryMethodHasAnAbuse checks the completeness of the list where the long test does not run.
func TestEveryMethodHasAnAbuse(t *testing.T) {
	t.Parallel()
	abuseOrder(t)
}
