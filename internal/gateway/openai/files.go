package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
)

const (
	filesName = "files" // in metrics, the log and errors
	// uploadTime limits the time in which a file arrives.
	uploadTime = 5 * time.Minute
	// maxField limits a field of a form other than the file, in bytes; maxForm limits the overhead
	// of the form.
	maxField = 1 << 10
	maxForm  = 64 << 10
)

// Files stores files that clients upload; package dispatch implements it. Its errors are
// *chat.Error values if a caller can act on them.
type Files interface {
	// SaveFile stores a file of at most [chat.MaxUpload] bytes; chat.CodeLimit when it is larger.
	// about has the name, the kind and the purpose.
	SaveFile(principal string, about chat.Upload, content io.Reader) (chat.Upload, error)
	// Find returns a file by its id, Use for a message that is about to name it; with own, only a
	// file of this principal. chat.ErrNotFound.
	Find(principal string, own bool, id string) (chat.Upload, error)
	Use(principal string, own bool, id string) (chat.Attachment, error)
	// Uploads lists the files of a principal, newest first.
	Uploads(principal string) ([]chat.Upload, error)
	// Content opens the content of a file by its path; the caller closes it.
	Content(path string) (io.ReadSeekCloser, error)
	// DropUpload removes a file that no message names.
	DropUpload(f chat.Attachment) error
	// DeleteFile removes a file by its id; with own, only one of this principal. chat.ErrNotFound;
	// chat.CodeConflict while unfinished work names it.
	DeleteFile(ctx context.Context, principal string, own bool, id string) error
}

// fileObject is a file as clients see it.
type fileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
	MIMEType  string `json:"mime_type"` // an extension of laneway
}

func objectOf(up chat.Upload) fileObject {
	return fileObject{
		ID: up.ID, Object: "file", Bytes: up.Size, CreatedAt: up.CreatedAt.Unix(), Filename: up.Name, Purpose: up.Purpose, Status: "processed", MIMEType: up.MIMEType,
	}
}

type fileList struct {
	Object  string       `json:"object"`
	Data    []fileObject `json:"data"`
	FirstID *string      `json:"first_id"`
	LastID  *string      `json:"last_id"`
	HasMore bool         `json:"has_more"`
}

// mostListed is the largest number of files that a list may be asked for, as in the API.
const mostListed = 10_000

// page returns the part of all files, newest first, that a query asks for.
func page(all []chat.Upload, query url.Values) (list fileList, err error) {
	limit := mostListed
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostListed {
			return list, invalid("limit", "limit is %s; it must be a number from 1 to %d", quoted(text), mostListed)
		}
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		slices.Reverse(all)
	default:
		return list, invalid("order", "order is %s; it must be asc or desc", quoted(order))
	}
	if after := query.Get("after"); after != "" {
		at := slices.IndexFunc(all, func(up chat.Upload) bool { return up.ID == after })
		if at < 0 {
			return list, invalid("after", "after is %s, which is none of your files; leave it out to begin anew", quoted(after))
		}
		all = all[at+1:]
	}
	if purpose := query.Get("purpose"); purpose != "" {
		all = slices.DeleteFunc(all, func(up chat.Upload) bool { return up.Purpose != purpose })
	}
	list = fileList{Object: "list", Data: make([]fileObject, 0, min(len(all), limit)), HasMore: len(all) > limit}
	for _, up := range all[:min(len(all), limit)] {
		list.Data = append(list.Data, objectOf(up))
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return list, nil
}

type deletedObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// FileHandler answers requests about files below /v1. It is safe for concurrent use.
type FileHandler struct {
	files      Files
	allowances *auth.Authenticator
	server     auth.Server
}

// NewFiles returns a handler of files.
func NewFiles(d Deps) *FileHandler {
	return &FileHandler{files: d.Files, allowances: d.Allowances, server: d.Server}
}

// handled calls f for a client with the scope, counts the call under name and answers its error.
func handled(server auth.Server, name, scope string, f func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		cred, ok := server.Bearer(w, r, scope)
		if !ok {
			return
		}
		err := f(w, r, cred)
		server.Count(name, err, time.Since(began))
		if err != nil {
			refuse(r.Context(), server, w, name, err)
		}
	}
}

// Upload answers POST /v1/files: a form with a file, which is written to the disk while it arrives.
func (h *FileHandler) Upload() http.HandlerFunc {
	return handled(h.server, filesName, chat.ScopeWrite, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		up, err := h.upload(w, r, cred)
		if err != nil {
			return err
		}
		httpbody.WriteJSON(w, http.StatusOK, objectOf(up))
		return nil
	})
}

// upload receives a file in a place of its principal. It takes the bytes from the allowance before
// it reads them: the Content-Length, or the maximum size of a file.
func (h *FileHandler) upload(w http.ResponseWriter, r *http.Request, cred auth.Credential) (chat.Upload, error) {
	if e := h.server.Refusal(); e != nil {
		return chat.Upload{}, e
	}
	if e := h.allowances.Spend(r.Context(), cred.Name, filesName, auth.LimitChats); e != nil {
		return chat.Upload{}, e
	}
	if r.ContentLength > chat.MaxUpload+maxForm {
		return chat.Upload{}, tooLarge()
	}
	n := r.ContentLength
	if n < 0 {
		n = chat.MaxUpload
	}
	if e := h.allowances.SpendBytes(r.Context(), cred.Name, filesName, int(n)); e != nil {
		return chat.Upload{}, e
	}
	leave, err := h.server.Share(cred.Name, cred.Own()).Enter(r.Context(), inflight.Upload)
	if err != nil {
		return chat.Upload{}, fault.ErrRequestTimeout
	}
	defer leave()
	httpbody.SetReadDeadline(w, uploadTime)
	r.Body = http.MaxBytesReader(w, r.Body, chat.MaxUpload+maxForm)
	up, err := h.readForm(r, cred)
	if _, over := errors.AsType[*http.MaxBytesError](err); over || chat.CodeOf(err) == chat.CodeLimit {
		return chat.Upload{}, tooLarge()
	}
	return up, err
}

func tooLarge() error {
	return chat.Errorf(chat.CodeLimit, "a file has at most %d bytes", chat.MaxUpload).With("status", "too_large").With("limit", chat.MaxUpload)
}

// readForm reads the form up to the file. Fields after the file are not read.
func (h *FileHandler) readForm(r *http.Request, cred auth.Credential) (chat.Upload, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return chat.Upload{}, fault.Invalid("the body must be a form (multipart/form-data) with a file").WithStatus(http.StatusUnsupportedMediaType)
	}
	about := chat.Upload{}
	for {
		field, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return chat.Upload{}, fault.Invalid("the form has no file; its field is named file")
		}
		if err != nil {
			return chat.Upload{}, brokenForm(err)
		}
		if field.FormName() == "file" {
			return h.saveField(field, cred, about)
		}
		value, err := io.ReadAll(io.LimitReader(field, maxField))
		if err != nil {
			return chat.Upload{}, brokenForm(err)
		}
		if field.FormName() == "purpose" {
			about.Purpose = string(value)
		}
	}
}

func (h *FileHandler) saveField(field *multipart.Part, cred auth.Credential, about chat.Upload) (chat.Upload, error) {
	about.Name, about.MIMEType = field.FileName(), field.Header.Get("Content-Type")
	if about.MIMEType == "application/octet-stream" { // the type that clients send when they do not know the type
		about.MIMEType = ""
	}
	from := &source{in: field}
	up, err := h.files.SaveFile(cred.Name, about, from)
	if err != nil && from.err != nil {
		return up, brokenForm(from.err)
	}
	return up, err
}

// source keeps the error of a reader, to distinguish a failure of the client from one of the disk.
type source struct {
	in  io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err // as it is
}

// brokenForm returns the error for a form that did not arrive completely.
func brokenForm(err error) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge()
	}
	return fault.Invalid("the form did not arrive whole, or is malformed")
}

// ListFiles answers GET /v1/files: the files of the caller, or the page of them that the query asks
// for.
func (h *FileHandler) ListFiles() http.HandlerFunc {
	return handled(h.server, filesName, chat.ScopeRead, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		all, err := h.files.Uploads(cred.Name)
		if err != nil {
			return err
		}
		list, err := page(all, r.URL.Query())
		if err != nil {
			return err
		}
		httpbody.WriteJSON(w, http.StatusOK, list)
		return nil
	})
}

// File answers GET /v1/files/{id}.
func (h *FileHandler) File() http.HandlerFunc {
	return handled(h.server, filesName, chat.ScopeRead, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		up, err := h.files.Find(cred.Name, cred.Own(), chi.URLParam(r, "id"))
		if err != nil {
			return err
		}
		httpbody.WriteJSON(w, http.StatusOK, objectOf(up))
		return nil
	})
}

// DeleteFile answers DELETE /v1/files/{id}. Only an administrator deletes the files of others.
func (h *FileHandler) DeleteFile() http.HandlerFunc {
	return handled(h.server, filesName, chat.ScopeWrite, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		if e := h.server.Refusal(); e != nil {
			return e
		}
		id := chi.URLParam(r, "id")
		if err := h.files.DeleteFile(r.Context(), cred.Name, !cred.Administers(cred.Scopes), id); err != nil {
			return err
		}
		httpbody.WriteJSON(w, http.StatusOK, deletedObject{ID: id, Object: "file", Deleted: true})
		return nil
	})
}

// FileContent answers GET /v1/files/{id}/content.
func (h *FileHandler) FileContent() http.HandlerFunc {
	return handled(h.server, filesName, chat.ScopeRead, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		up, err := h.files.Find(cred.Name, cred.Own(), chi.URLParam(r, "id"))
		if err != nil {
			return err
		}
		return h.send(w, r, up.Attachment, up.CreatedAt)
	})
}

// MessageFile answers a GET for a file that find returns, one that came with a message of a
// conversation.
func (h *FileHandler) MessageFile(find func(ctx context.Context, cred auth.Credential, query url.Values) (chat.Attachment, error)) http.HandlerFunc {
	return handled(h.server, filesName, chat.ScopeRead, func(w http.ResponseWriter, r *http.Request, cred auth.Credential) error {
		f, err := find(r.Context(), cred, r.URL.Query())
		if err != nil {
			return err
		}
		return h.send(w, r, f, time.Time{})
	})
}

// send answers with the content of a file. A browser must not show it as a page, because it comes
// from outside.
func (h *FileHandler) send(w http.ResponseWriter, r *http.Request, f chat.Attachment, made time.Time) error {
	content, err := h.files.Content(f.Path)
	if err != nil {
		return err
	}
	defer content.Close()
	head := w.Header()
	head.Set("Content-Type", cmp.Or(f.MIMEType, "application/octet-stream"))
	head.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	head.Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", made, content)
	return nil
}

// refuse answers with an error. A file that is too large has its own status.
func refuse(ctx context.Context, server auth.Server, w http.ResponseWriter, name string, err error) {
	e := server.Explain(ctx, name, err)
	if e.Details["status"] == "too_large" {
		e = e.WithStatus(http.StatusRequestEntityTooLarge)
	}
	WriteError(w, e.HTTPStatus(), e)
}

// filePart are the members of a part that is a file.
type filePart struct {
	FileID   string `json:"file_id"`
	FileData string `json:"file_data"`
	Filename string `json:"filename"`
}

// inputFile is a file of a message: one that was uploaded before, by its id, or one whose content
// is in the request.
type inputFile struct {
	id         string
	name, kind string
	content    []byte
}

// inputFile returns the file of a part of type image_url, input_image, file or input_file.
func (p *contentPart) inputFile() (inputFile, error) {
	about := p.filePart
	if p.File != nil {
		about = *p.File
	}
	url := about.FileData
	if len(p.ImageURL) > 0 && string(p.ImageURL) != "null" {
		var object struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(p.ImageURL, &url) != nil && json.Unmarshal(p.ImageURL, &object) != nil {
			return inputFile{}, errors.New("image_url must be a URL, or an object with a url")
		}
		if object.URL != "" {
			url = object.URL
		}
	}
	switch {
	case about.FileID != "" && url != "":
		return inputFile{}, errors.New("a part has a file_id or the content of a file, not both")
	case about.FileID != "":
		return inputFile{id: about.FileID}, nil
	case url == "":
		return inputFile{}, fmt.Errorf("a part of type %s needs a file_id or the content of a file", quoted(p.Type))
	}
	return decodeFile(about.Filename, url)
}

// decodeFile decodes the content of a file in a request: a data URL, or plain base64.
func decodeFile(name, url string) (inputFile, error) {
	data, kind := url, ""
	if strings.Contains(url, ":") {
		head, rest, ok := strings.Cut(url, ",")
		given, isData := strings.CutPrefix(head, "data:")
		given, coded := strings.CutSuffix(given, ";base64")
		if !ok || !isData || !coded {
			return inputFile{}, errors.New("the content of a file must be a data: URL with base64, or name a file by file_id (POST /v1/files); the gateway fetches nothing from other addresses")
		}
		data, kind = rest, given
	}
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(content) == 0 {
		return inputFile{}, errors.New("the content of a file is not base64, or empty")
	}
	return inputFile{name: nameOf(name, kind), kind: kind, content: content}, nil
}

// nameOf returns a name for a file without a name.
func nameOf(name, kind string) string {
	if name != "" {
		return name
	}
	if ending, ok := strings.CutPrefix(kind, "image/"); ok {
		return "image." + ending
	}
	return "file"
}

// attach stores the files of a request. On an error, the files that it has stored are removed; see
// [call.discard].
func (h *Handler) attach(ctx context.Context, c *call) (err error) {
	if len(c.prompt.files) > chat.MaxAttachments {
		return fault.Invalid(fmt.Sprintf("a request has at most %d images and files", chat.MaxAttachments))
	}
	if len(c.prompt.files) > 0 && h.files == nil {
		return fault.Invalid("this gateway keeps no files")
	}
	defer func() {
		if err != nil {
			h.discard(ctx, c)
		}
	}()
	for _, f := range c.prompt.files {
		if f.id != "" {
			used, err := h.files.Use(c.cred.Name, c.cred.Own(), f.id)
			if errors.Is(err, chat.ErrNotFound) {
				err = chat.Errorf(chat.CodeNotFound, "the file %s does not exist", quoted(f.id)).With("param", "file_id")
			}
			if err != nil {
				return err
			}
			c.attachments = append(c.attachments, used)
			continue
		}
		up, err := h.files.SaveFile(c.cred.Name, chat.Upload{Attachment: chat.Attachment{Name: f.name, MIMEType: f.kind}, Purpose: "user_data"}, bytes.NewReader(f.content))
		if err != nil {
			return err // for the client as it is
		}
		c.saved, c.attachments = append(c.saved, up.Attachment), append(c.attachments, up.Attachment)
	}
	return nil
}

// discard removes the files that a request has stored and that no message names.
func (h *Handler) discard(ctx context.Context, c *call) {
	for _, f := range c.saved {
		if err := h.files.DropUpload(f); err != nil {
			h.log.WarnContext(ctx, "a file that no message names was not removed; retention removes it", slog.Any("err", err))
		}
	}
	c.saved, c.attachments = nil, nil
}
