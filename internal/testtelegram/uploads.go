package testtelegram

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

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

// disposition reads the header of a part as Telegram does: a semicolon ends a value even within quotes, nothing is unescaped, and a part without a
// plain filename is a parameter.
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
