package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// fileTimeout limits the upload or the download of one file.
const fileTimeout = 5 * time.Minute

// File is a file that a gateway has stored.
type File struct {
	// ID names it in the attachments of messages.
	ID    string `json:"id"`
	Name  string `json:"filename"`
	Bytes int64  `json:"bytes"`
}

// Upload sends a file to the gateway over HTTP. name is what people and agents see, size is the number of bytes of content. The content is
// streamed and sent once.
func Upload(ctx context.Context, opts Options, name string, content io.Reader, size int64) (File, error) {
	opts = opts.withDefaults()
	address, err := filesURL(opts)
	if err != nil {
		return File{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	req, err := uploadRequest(ctx, address, name, content, size)
	if err != nil {
		return File{}, err
	}
	resp, err := opts.roundTrip(req)
	if err != nil {
		return File{}, fmt.Errorf("sending %s: %w", name, err)
	}
	defer resp.Body.Close()
	return uploaded(name, resp)
}

// Download writes the content of a file of the gateway, and returns its name. The file is one that
// was uploaded, or that an agent made. A file that does not exist, or that belongs to another
// credential, is an error with the gateway's sentence.
func Download(ctx context.Context, opts Options, id string, to func(name string) (io.Writer, error)) error {
	opts = opts.withDefaults()
	address, err := filesURL(opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/"+url.PathEscape(id)+"/content", nil)
	if err != nil {
		return fmt.Errorf("making the request for a file: %w", err)
	}
	resp, err := opts.roundTrip(req)
	if err != nil {
		return fmt.Errorf("reading %s: %w", id, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, err := uploaded(id, resp)
		return err
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
	if err != nil {
		params = nil // it has no name
	}
	w, err := to(params["filename"])
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("reading %s: %w", id, err)
	}
	return nil
}

// roundTrip makes one request with the token.
func (opts Options) roundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+opts.Token)
	transport := &http.Transport{TLSClientConfig: opts.TLS, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, dialError(req.URL.String(), nil, err)
	}
	return resp, nil
}

// filesURL returns the upload URL of the gateway at a WebSocket address.
func filesURL(opts Options) (string, error) {
	address, err := webSocketURL(opts.URL, opts.AllowPlain)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("the gateway's address: %w", err)
	}
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/ws") + "/v1/files"
	return u.String(), nil
}

// uploadRequest wraps the content in a form without reading it into memory.
func uploadRequest(ctx context.Context, address, name string, content io.Reader, size int64) (*http.Request, error) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if err := errors.Join(form.WriteField("purpose", "user_data"), second(form.CreateFormFile("file", name))); err != nil {
		return nil, fmt.Errorf("making the form of a file: %w", err)
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, io.MultiReader(&head, io.LimitReader(content, size), strings.NewReader(tail)))
	if err != nil {
		return nil, fmt.Errorf("making the request for a file: %w", err)
	}
	req.ContentLength = int64(head.Len()) + size + int64(len(tail))
	req.Header.Set("Content-Type", form.FormDataContentType())
	return req, nil
}

func second[T any](_ T, err error) error { return err }

func uploaded(name string, resp *http.Response) (File, error) {
	var answer struct {
		File

		Error struct{ Message string }
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer)
	switch {
	case resp.StatusCode == http.StatusOK && err == nil && answer.ID != "":
		return answer.File, nil
	case answer.Error.Message != "":
		return File{}, fmt.Errorf("%s: %s", name, answer.Error.Message)
	case resp.StatusCode == http.StatusNotFound:
		return File{}, fmt.Errorf("%s: this gateway has no files; update it", name)
	default:
		return File{}, fmt.Errorf("%s: the gateway answered with status %d", name, resp.StatusCode)
	}
}
