package testtelegram

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"
)

// AddFile stores a file that messages can refer to by its id.
func (s *Server) AddFile(id string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[id] = content
}

// AddLocalFile makes the server name a file by an absolute path, as one in local mode does. It serves no such file.
func (s *Server) AddLocalFile(id, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local[id] = path
}

func (s botAPI) getFile(p url.Values) answer {
	id := p.Get("file_id")
	if path := s.local[id]; path != "" {
		return ok(map[string]any{"file_id": id, "file_unique_id": "u" + id, "file_path": path})
	}
	content, found := s.files[id]
	if !found {
		return badRequest("wrong file_id or the file is temporarily unavailable")
	}
	return ok(map[string]any{"file_id": id, "file_unique_id": "u" + id, "file_size": len(content), "file_path": "files/" + id})
}

// serveFile answers with the content of a file. Faults for the method "file" apply.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, path string) {
	index, fault, broken := s.arrive("file", url.Values{"path": {path}}, nil)
	if broken && fault.Delay == 0 {
		s.fail(w, r, index, fault)
		return
	}
	if broken {
		t := time.NewTimer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	s.mu.Lock()
	content, found := s.files[pathID(path)]
	s.mu.Unlock()
	if !found {
		s.end(index, http.StatusNotFound)
		write(w, refuse(http.StatusNotFound, "Not Found"))
		return
	}
	s.end(index, http.StatusOK)
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := w.Write(content); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func pathID(path string) string {
	if len(path) > len("files/") {
		return path[len("files/"):]
	}
	return path
}

type webhook struct{ url, secret string }

// Webhook returns the address and the secret that the bot set.
func (s *Server) Webhook() (address, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.webhook.url, s.webhook.secret
}

// Deliver sends an update to a webhook handler as Telegram does, and returns the status of the answer.
func (s *Server) Deliver(ctx context.Context, h http.Handler, u map[string]any) int {
	s.mu.Lock()
	if _, given := u["update_id"]; !given {
		u["update_id"] = s.nextUpdate
		s.nextUpdate++
	}
	secret := s.webhook.secret
	s.mu.Unlock()
	body, err := json.Marshal(u)
	if err != nil {
		panic("testtelegram: " + err.Error())
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/telegram/webhook/default", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
