package dispatch_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
)

// The deleted session has a background task with a background task, and another session refers to one of its files.
func TestADeletionRemovesRunningSubTurnsAndFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "laneway.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		keep, dir := keepFiles(t)
		h := open(t, db, team(&branching{}), keep)
		defer h.close()
		upload := func(name string) chat.Attachment {
			up, err := h.d.SaveFile("tester", chat.Upload{Attachment: chat.Attachment{Name: name}}, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			return up.Attachment
		}
		own, shared := upload("own"), upload("shared")
		with := func(files ...chat.Attachment) func(m *chat.Message) {
			return func(m *chat.Message) { m.Content.Attachments = files }
		}
		deep := calling(spawns("sleep 20m", false), asked{Tool: "spawn", Args: map[string]any{"task": "sleep 10m", "wait": true}})
		want(t, "outcome", h.end(h.send("agent:main:room", calling(spawns(deep, false)), with(own, shared))).Outcome, chat.OutcomeAnswered)
		h.end(h.send("agent:main:other", "hello", with(shared)))
		synctest.Wait()
		want(t, "tasks that run", len(h.tasks(store.TaskFilter{Open: true})), 3)
		out, err := h.d.Delete(t.Context(), store.DeleteParams{Session: chat.SessionKey{Agent: "main", Rest: "room"}}, chat.Caller{Principal: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "deleted", out.Deleted, true)
		want(t, "tasks", len(h.tasks(store.TaskFilter{})), 0)
		for name, f := range map[string]chat.Attachment{"own": own, "shared": shared} {
			_, err := dir.Root().Stat(f.Path)
			want(t, "the file "+name+" is there", err == nil, name == "shared")
		}
		h.wantSlots()
	})
}
