package teste2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"laneway/internal/wire"
)

// asked sends a GET with a token; "" = no token.
func (g *Gateway) asked(t *testing.T, token, path string) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(content)
}

// The files of a conversation can be read by those who may read the conversation, by no other principal, and under no other name. Before, a
// history had only their names.
func TestFilesOfAHistoryAreReadWithIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\n")
		g.Start()
		ann, bob := g.makeToken(t, "ann", "write", "own"), g.makeToken(t, "bob", "write", "own")
		contents := map[string]string{"one.txt": "the first", "two.txt": "the second"}
		args := []string{"send", "look", "--token", ann, "--session", "agent:main:api:ann:files"}
		for _, name := range []string{"one.txt", "two.txt"} {
			path := filepath.Join(g.Dir, name)
			if err := os.WriteFile(path, []byte(contents[name]), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--file", path)
		}
		for range 2 { // the same files again, in another message
			if out, errs, code := g.CLI(t.Context(), "", args...); code != 0 {
				t.Fatalf("laneway send: %d %s %s", code, out, errs)
			}
		}
		history := func(token string) (files []wire.MessageFile) {
			t.Helper()
			c, err := Dial(g.URL(), token, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var page struct{ Messages []wire.HistoryMessage }
			if err := c.Into(&page, "chat.history", map[string]any{"sessionKey": "agent:main:api:ann:files"}); err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Messages {
				files = append(files, m.Files...)
			}
			return files
		}
		if files := history(bob); files != nil {
			t.Errorf("another principal sees %v", files)
		}
		files := history(ann)
		if len(files) != 4 || files[0].URL == files[2].URL {
			t.Fatalf("the history has %+v", files)
		}
		for i, f := range files {
			name := []string{"one.txt", "two.txt"}[i%2]
			for who, token := range map[string]string{"the owner": ann, "the operator": g.Token()} {
				status, h, body := g.asked(t, token, f.URL)
				if f.Name != name || f.Size != int64(len(contents[name])) || status != http.StatusOK || body != contents[name] {
					t.Errorf("%s reads %+v: %d %q", who, f, status, body)
				}
				if !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
					t.Errorf("the headers are %v", h)
				}
			}
			if status, _, body := g.asked(t, bob, f.URL); status != http.StatusNotFound {
				t.Errorf("another principal reads %s: %d %s", f.URL, status, body)
			}
			if status, _, _ := g.asked(t, "", f.URL); status != http.StatusUnauthorized {
				t.Errorf("without a token: %d", status)
			}
		}
		one := files[0].URL
		for path, want := range map[string]int{
			strings.Replace(one, "n=0", "n=2", 1): 404, strings.Replace(one, "n=0", "n=-1", 1): 400, strings.Replace(one, "n=0", "n=x", 1): 400,
			strings.Replace(one, "seq=1", "seq=2", 1): 404, strings.Replace(one, "seq=1", "seq=999", 1): 404, strings.Replace(one, "seq=1", "seq=0", 1): 400,
			strings.Replace(one, "%3Afiles", "%3Aother", 1): 404, "/v1/message-file": 400, "/v1/message-file?sessionKey=../../etc&seq=1&n=0": 404,
		} {
			if status, _, body := g.asked(t, g.Token(), path); status != want || !json.Valid([]byte(body)) {
				t.Errorf("%s: %d %s, want %d", path, status, body, want)
			}
		}
		if out, errs, code := g.CLI(t.Context(), "", "sessions", "reset", "agent:main:api:ann:files"); code != 0 {
			t.Fatalf("laneway sessions reset: %s %s", out, errs)
		}
		if status, _, body := g.asked(t, g.Token(), one); status != http.StatusOK || body != contents["one.txt"] {
			t.Errorf("a file of the transcript before the reset: %d %s", status, body)
		}
		if files := history(ann); files != nil {
			t.Errorf("the new transcript has %s", fmt.Sprint(files))
		}
	})
}
