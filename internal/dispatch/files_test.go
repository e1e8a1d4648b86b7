package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/files"
)

// keepFiles gives the harness a directory for files.
func keepFiles(t *testing.T) (option, *files.Dir) {
	t.Helper()
	d, err := files.Open(filepath.Join(t.TempDir(), "attachments"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(c *dispatch.Config) { c.Files = d }, d
}

// storedFiles returns how many files are below a place of the directory.
func storedFiles(t *testing.T, d *files.Dir, place string) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(d.Root().Name(), place))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(entries)
}

func toAsker(m *chat.Message) {
	m.Content.Options.ReplyTo, m.Channel = chat.Target{Channel: "asker", ChatID: "7", Thread: "3"}, "asker"
}

// shown returns what was sent to the channel that shows files: texts unchanged, files by name and
// content.
func (h *harness) shown(d *files.Dir) (list []string) {
	h.t.Helper()
	h.asker.mu.Lock()
	defer h.asker.mu.Unlock()
	for _, r := range h.asker.sent {
		if r.File == nil {
			list = append(list, r.Text)
			continue
		}
		raw, err := d.Root().ReadFile(r.File.Path)
		if err != nil || r.Target.Thread != "3" || r.Text != r.File.Line() {
			h.t.Errorf("the file of %+v: %v", r, err)
		}
		list = append(list, r.File.Name+"="+string(raw))
	}
	return list
}

const (
	lineA = "[file: a.txt, text/plain, 5 bytes]"
	lineB = "[file: b.txt, text/plain, 5 bytes]"
)

func TestFilesOfAnAnswerReachThePersonBehindItsText(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt)
		id := h.send("agent:main:asker:direct:7", "files b.txt missing.txt a.txt", toAsker)
		end := h.end(id)
		after(10 * time.Second)
		const left = "Left out: missing.txt (there is no such file)."
		wantList(t, "shown", h.shown(dir), []string{"here\n\n" + left, "b.txt=b.txt", "a.txt=a.txt"})
		whole := "here\n\n" + left + "\n\n" + lineB + "\n" + lineA
		want(t, "a caller gets", end.Text, whole)
		tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:asker:direct:7"))
		if err != nil || len(tr.Entries) != 2 || tr.Entries[1].Text != whole {
			t.Errorf("later turns know of %+v, %v", tr.Entries, err)
		}
		var deltas strings.Builder
		for _, e := range h.events {
			if e.Kind == chat.EventDelta && e.RunID == id {
				deltas.WriteString(e.Delta)
			}
		}
		want(t, "deltas joined", deltas.String(), whole)
		want(t, "directories of turns that are left", storedFiles(t, dir, "turns"), 0)
		want(t, "files that are kept", storedFiles(t, dir, "outgoing"), 2)
		h.close()
	})
}

func TestWhereOnlyWordsAreShownFilesAreLines(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt)
		h.end(h.send("agent:main:box:direct:7", "files a.txt", replyTo("7")))
		web := h.end(h.send("main", "files a.txt"))
		after(10 * time.Second)
		wantList(t, "a channel without files", h.box.texts("7"), []string{"here", lineA})
		before, id, _ := strings.Cut(strings.TrimSuffix(web.Text, "]"), ", file-")
		want(t, "a caller without a channel", before+"]", "here\n\n"+lineA)
		kept, err := h.d.Uploads.Find("tester", true, "file-"+id)
		if err != nil {
			t.Fatalf("the file of %q: %v", web.Text, err)
		}
		raw, err := dir.Read(kept.Path, 100)
		if err != nil || string(raw) != "a.txt" {
			t.Errorf("the caller reads %q, %v", raw, err)
		}
		if _, err := h.d.Uploads.Find("somebody", true, "file-"+id); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("another principal gets %v, want no such file", err)
		}
		want(t, "files that wait for a channel", storedFiles(t, dir, "outgoing"), 1)
		h.close()
	})
}

func TestFileOfUnfinishedMessageIsNotDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, _ := keepFiles(t)
		h := open(t, newStore(t), opt)
		up, err := h.d.Uploads.SaveFile("tester", chat.Upload{Attachment: chat.Attachment{Name: "a.txt"}}, strings.NewReader("a"))
		if err != nil {
			t.Fatal(err)
		}
		named := func(m *chat.Message) { m.Content.Attachments = []chat.Attachment{up.Attachment} }
		id := h.send("main", "sleep 1m", named)
		after(time.Second)
		if err := h.d.Uploads.DeleteFile(t.Context(), "tester", true, up.ID); chat.CodeOf(err) != chat.CodeConflict {
			t.Errorf("a file of a running turn: %v, want a conflict", err)
		}
		if err := h.d.Uploads.DeleteFile(t.Context(), "somebody", true, up.ID); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("another principal: %v, want no such file", err)
		}
		h.end(id)
		if err := h.d.Uploads.DeleteFile(t.Context(), "tester", true, up.ID); err != nil {
			t.Error(err)
		}
		if _, err := h.d.Uploads.Find("tester", true, up.ID); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("after the deletion: %v", err)
		}
		h.close()
	})
}

func TestAFileMayBeTheWholeAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt)
		end := h.end(h.send("agent:main:asker:direct:7", "bare-files a.txt", toAsker))
		after(10 * time.Second)
		wantList(t, "shown", h.shown(dir), []string{"a.txt=a.txt"})
		want(t, "a caller gets", end.Text, lineA)
		h.close()
	})
}

func TestAFailedTurnKeepsNoFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt)
		h.end(h.send("agent:main:asker:direct:7", "fail-files a.txt", toAsker))
		after(10 * time.Second)
		want(t, "messages", len(h.shown(dir)), 1)
		want(t, "left behind", storedFiles(t, dir, "turns")+storedFiles(t, dir, "outgoing"), 0)
		h.close()
	})
}

// A file that was not delivered is tried again alone: the text and earlier files are not sent
// again.
func TestOnlyTheFileThatFailedIsSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt)
		tries := 0
		h.asker.fail = func(r chat.Reply) error {
			if r.File != nil && r.File.Name == "b.txt" {
				if tries++; tries < 3 {
					return errors.New("down")
				}
			}
			return nil
		}
		h.end(h.send("agent:main:asker:direct:7", "files a.txt b.txt c.txt", toAsker))
		after(time.Minute)
		want(t, "tries", tries, 3)
		wantList(t, "shown", h.shown(dir), []string{"here", "a.txt=a.txt", "b.txt=b.txt", "c.txt=c.txt"})
		h.close()
	})
}

func TestFilesOfAJob(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		shown      []string
		suppressed string
		status     cron.DeliveryStatus
	}{
		"WithText":     {"files a.txt b.txt", []string{"here", "a.txt=a.txt", "b.txt=b.txt"}, "", cron.DeliveryDone},
		"FilesAlone":   {"bare-files a.txt", []string{"a.txt=a.txt"}, "", cron.DeliveryDone},
		"NothingToSay": {"quiet-files a.txt", nil, "no-reply", cron.DeliveryNotRequested},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opt, dir := keepFiles(t)
				h := openCron(t, newStore(t), bodies, opt)
				h.put(once("job", c.text, time.Second), deliverTo(cron.Delivery{
					Mode: cron.DeliverAnnounce, Channel: "asker", To: "7", Thread: "3",
					Options: []byte(`{"completionDestination":{"mode":"webhook","to":"` + hookURL + `"}}`),
				}))
				after(time.Minute)
				wantList(t, "shown", h.shown(dir), c.shown)
				r := h.runs("job")[0]
				want(t, "suppressed", r.SuppressedBy, c.suppressed)
				if c.shown != nil {
					want(t, "delivery", r.Delivery, c.status)
				}
				sent := h.hook.texts(hookURL)
				if len(sent) != 1 || !strings.HasSuffix(sent[0], "bytes]") {
					t.Errorf("the webhook gets %q", sent)
				}
				h.close()
			})
		})
	}
}

// The notice of a failure and the webhook about it are two rows of one run.
func TestAFailureReachesThePersonAndTheWebhook(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("bad", "fail bad_request", time.Second), deliverTo(cron.Delivery{
			Mode: cron.DeliverAnnounce, Channel: "box", To: "9", Options: []byte(`{"completionDestination":{"mode":"webhook","to":"` + hookURL + `"}}`),
		}))
		after(5 * time.Minute)
		if len(h.box.texts("9")) == 0 || len(h.hook.texts(hookURL)) != 1 {
			t.Errorf("the person gets %q, the webhook %q", h.box.texts("9"), h.hook.texts(hookURL))
		}
	}, bodies)
}

func TestOldFilesAreRemovedWithOldMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := openCron(t, newStore(t), opt, func(c *dispatch.Config) { c.Cron.MessageRetention = time.Hour })
		h.asker.fail = func(r chat.Reply) error {
			if r.File != nil && r.File.Name == "b.txt" {
				return errors.New("down")
			}
			return nil
		}
		h.end(h.send("agent:main:asker:direct:7", "files a.txt b.txt", toAsker))
		after(3 * time.Hour)
		h.asker.mu.Lock()
		h.asker.fail = nil
		h.asker.mu.Unlock()
		h.end(h.send("agent:main:asker:direct:8", "files c.txt", func(m *chat.Message) {
			toAsker(m)
			m.Content.Options.ReplyTo.ChatID = "8"
		}))
		want(t, "files before", storedFiles(t, dir, "outgoing"), 3)
		after(time.Hour) // the job is at 3:37
		page, err := h.jobs.Runs(t.Context(), cron.RunFilter{Query: "outgoing"})
		if err != nil || len(page.Runs) != 1 || !strings.HasSuffix(page.Runs[0].Summary, ", 2 files") {
			t.Errorf("the ledger has %+v, %v", page.Runs, err)
		}
		want(t, "files after", storedFiles(t, dir, "outgoing"), 1)
		h.close()
	})
}

// sending is a runner that writes files into its directory, makes calls of send_file, and answers
// with their results, one in each line.
type sending struct {
	calls   []map[string]string
	twice   bool // each call is repeated with its key
	outside string
}

func (s *sending) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	dir, err := req.OutputDir()
	if err != nil {
		return agent.Result{}, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "a.txt"), []byte("from a"), 0o600),
		os.Symlink(s.outside, filepath.Join(dir, "link.txt")),
		os.WriteFile(filepath.Join(dir, "huge.bin"), []byte("x"), 0o600),
		os.Truncate(filepath.Join(dir, "huge.bin"), files.MaxFile+1),
	)
	if err != nil {
		return agent.Result{}, err
	}
	var results []string
	for i, args := range s.calls {
		raw, err := json.Marshal(args)
		if err != nil {
			return agent.Result{}, err
		}
		call := chat.ToolCall{ID: "c", Name: "send_file", Args: string(raw)}
		key := fmt.Sprintf("%s/1/%d", req.IdempotencyKey, i+1)
		results = append(results, req.Tools.Call(ctx, key, call).Text)
		if s.twice {
			results = append(results, req.Tools.Call(ctx, key, call).Text)
		}
	}
	answer := agent.NewAnswer(0, emit)
	err = answer.Append(strings.Join(results, "\n"))
	return agent.Result{Text: answer.Text(), StopReason: agent.StopNormal}, err
}

func named(path, name, text string) map[string]string {
	return map[string]string{"path": path, "name": name, "text": text}
}

func TestAToolSendsFilesOfItsTurnAndNoOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		outside := filepath.Join(t.TempDir(), "secret.txt")
		if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		runner := &sending{outside: outside, calls: []map[string]string{
			named("a.txt", "Report.txt", ""), named("", "table.csv", "a,b\n1,2\n"),
			named("../../outgoing", "", ""), named(outside, "", ""), named("link.txt", "", ""), named("huge.bin", "", ""), named("none", "", ""),
			named("", "", "x"), named("a", "b", "c"),
			{},
		}}
		h := open(t, newStore(t), opt, withRunner(runner, dispatch.Tools{Default: true}))
		end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker))
		after(10 * time.Second)
		got := strings.Split(end.Text, "\n")
		for i, part := range []string{
			"The file Report.txt is on its way.", "The file table.csv is on its way.",
			"(it is not in the directory for files)", "(it is not in the directory for files)", "(it is a link)", "(it is larger than 50 MB)", "(there is no such file)",
			"a file of a text needs a name", "give either path or text", "give either path or text",
		} {
			if i >= len(got) || !strings.Contains(got[i], part) {
				t.Errorf("call %d: got %q, want %q", i, got, part)
			}
		}
		wantList(t, "shown", h.shown(dir)[:2], []string{"Report.txt=from a", "table.csv=a,b\n1,2\n"})
		want(t, "messages", len(h.shown(dir)), 3)
		want(t, "directories of turns", storedFiles(t, dir, "turns"), 0)
		h.close()
	})
}

func TestACallThatIsMadeAgainSendsNoSecondFile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		runner := &sending{twice: true, outside: "none", calls: []map[string]string{named("a.txt", "", ""), named("", "b.txt", "text")}}
		h := open(t, newStore(t), opt, withRunner(runner, dispatch.Tools{Default: true}))
		end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker))
		after(10 * time.Second)
		wantList(t, "shown", h.shown(dir), []string{"a.txt=from a", "b.txt=text", end.Text})
		if !strings.Contains(end.Text, "the file may have been sent before") {
			t.Errorf("got %q", end.Text)
		}
		h.close()
	})
}

func TestATurnSendsAtMostTenFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		runner := &sending{outside: "none"}
		for range files.MaxFiles + 2 {
			runner.calls = append(runner.calls, named("", "f.txt", "text"))
		}
		h := open(t, newStore(t), opt, withRunner(runner, dispatch.Tools{Default: true}))
		end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker))
		after(10 * time.Second)
		want(t, "refusals", strings.Count(end.Text, "a turn sends at most 10 files"), 2)
		want(t, "messages", len(h.shown(dir)), files.MaxFiles+1)
		h.close()
	})
}

func TestWhereNoFilesAreShownTheToolIsNotOffered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		opt, dir := keepFiles(t)
		h := open(t, newStore(t), opt, withRunner(&sending{outside: "none", calls: []map[string]string{named("a.txt", "", "")}}, dispatch.Tools{Default: true}))
		for _, change := range []func(*chat.Message){func(*chat.Message) {}, replyTo("7")} {
			if end := h.end(h.send("agent:main:words", "go", change)); !strings.Contains(end.Text, "there is no tool send_file") {
				t.Errorf("got %q", end.Text)
			}
		}
		if end := h.end(h.send("agent:main:asker:direct:7", "go", toAsker, external)); !strings.Contains(end.Text, "text from outside") {
			t.Errorf("in a turn of text from outside: got %q", end.Text)
		}
		want(t, "files", storedFiles(t, dir, "outgoing"), 0)
		h.close()
	})
}
