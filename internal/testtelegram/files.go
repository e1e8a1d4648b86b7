package testtelegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"
)

// AddFile stores a file that messages can refer to by its id.
func (s *Server) AddFile(id string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[id] = content
}

// AddLocalFile makes the server name a file by an absolute path, as one in local mode does. It
// serves no such file.
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

// Deliver sends an update to a webhook handler as Telegram does, and returns the status of the
// answer.
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

// Bounds of what a bot may upload, in bytes.
const (
	MaxUpload = 50 << 20
	MaxPhoto  = 10 << 20
)

// File is a file that a bot has uploaded.
type File struct {
	// Method that sent it, and the form's description of the file.
	Method, Name, Type string
	Content            []byte

	field string
}

// uploads returns the methods that take a file, each with the field of the file.
func uploads() map[string]string {
	return map[string]string{"sendPhoto": "photo", "sendDocument": "document", "sendVoice": "voice"}
}

// errForm means that a body does not match its header.
var errForm = errors.New("the form cannot be read")

// readForm reads the parameters of a call, and its file if it has one.
func readForm(r *http.Request, method string) (url.Values, *File, error) {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		form, err := readJSON(r)
		return form, nil, err
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		err := r.ParseForm()
		return r.Form, nil, err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, nil, errForm
	}
	form := url.Values{}
	var file *File
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, errForm
		}
		content, err := io.ReadAll(io.LimitReader(part, MaxUpload+1))
		if err != nil {
			return nil, nil, errForm
		}
		field, name, isFile := disposition(part.Header.Get("Content-Disposition"))
		switch {
		case field == "", isFile && file != nil:
			return nil, nil, errForm
		case isFile:
			file = &File{Method: method, Name: name, Type: part.Header.Get("Content-Type"), Content: content, field: field}
		default:
			form.Add(field, string(content))
		}
	}
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n > 0 {
		return nil, nil, errForm
	}
	return form, file, nil
}

// disposition reads the header of a part as Telegram does: a semicolon ends a value even within
// quotes, nothing is unescaped, and a part without a plain filename is a parameter.
func disposition(header string) (field, name string, isFile bool) {
	for i, piece := range strings.Split(header, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(piece), "=")
		if len(value) > 1 && strings.HasPrefix(value, `"`) && strings.HasSuffix(value, `"`) {
			value = value[1 : len(value)-1]
		}
		switch {
		case i == 0 && key != "form-data":
			return "", "", false
		case key == "name":
			field = value
		case key == "filename":
			name, isFile = value, true
		}
	}
	return field, name, isFile
}

// sendFile sends a message with a file. The mutex is held.
func (s botAPI) sendFile(method string, p url.Values, file *File) answer {
	r, refused := s.reach(p.Get("chat_id"))
	if refused != nil {
		return *refused
	}
	thread, refused := r.thread(p.Get("message_thread_id"))
	if refused != nil {
		return *refused
	}
	switch field := uploads()[method]; {
	case file == nil || file.field != field:
		return badRequest("there is no " + field + " in the request")
	case len(file.Content) == 0:
		return badRequest("file must be non-empty")
	case len(file.Content) > MaxUpload:
		return refuse(http.StatusRequestEntityTooLarge, "Request Entity Too Large")
	case method == "sendPhoto" && len(file.Content) > MaxPhoto:
		return badRequest("too big for a photo")
	case method == "sendPhoto" && !slices.Contains([]string{"image/jpeg", "image/png", "image/webp", "image/gif"}, http.DetectContentType(file.Content)):
		return badRequest("IMAGE_PROCESS_FAILED")
	}
	m := &Message{ID: r.next, Thread: thread, SentAt: time.Now(), File: file}
	r.next++
	r.messages = append(r.messages, m)
	return ok(s.messageJSON(r, m))
}

// readJSON reads the parameters of a JSON body: strings unchanged, everything else as JSON.
func readJSON(r *http.Request) (url.Values, error) {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(io.LimitReader(r.Body, MaxUpload)).Decode(&body); err != nil {
		return nil, errForm
	}
	form := url.Values{}
	for name, raw := range body {
		text := string(raw)
		if err := json.Unmarshal(raw, &text); err != nil {
			text = string(raw)
		}
		form.Set(name, text)
	}
	return form, nil
}
