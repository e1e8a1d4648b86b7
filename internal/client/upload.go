package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// uploadTimeout limits the upload of one file.
const uploadTimeout = 5 * time.Minute

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
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	req, err := uploadRequest(ctx, address, name, content, size)
	if err != nil {
		return File{}, err
	}
	req.Header.Set("Authorization", "Bearer "+opts.Token)
	transport := &http.Transport{TLSClientConfig: opts.TLS, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return File{}, fmt.Errorf("sending %s: %w", name, dialError(address, nil, err))
	}
	defer resp.Body.Close()
	return uploaded(name, resp)
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
	case resp.StatusCode == http.StatusNotFound:
		return File{}, fmt.Errorf("sending %s: this gateway takes no files; update it", name)
	case answer.Error.Message != "":
		return File{}, fmt.Errorf("sending %s: %s", name, answer.Error.Message)
	default:
		return File{}, fmt.Errorf("sending %s: the gateway answered with status %d", name, resp.StatusCode)
	}
}
