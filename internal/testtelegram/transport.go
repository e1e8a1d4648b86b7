package testtelegram

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
)

// Transport calls the server in the goroutine of the caller. A connection that the server resets is an error, a body that it cuts ends
// unexpectedly, and a caller whose context is done receives its error.
func (s *Server) Transport() http.RoundTripper { return direct{s} }

type direct struct{ h http.Handler }

// RoundTrip implements [http.RoundTripper].
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer func() { _ = r.Body.Close() }()
	rec := &recorder{header: http.Header{}}
	aborted := serve(d.h, rec, r)
	if r.Context().Err() != nil {
		return nil, context.Cause(r.Context())
	}
	if aborted && rec.status == 0 {
		return nil, syscall.ECONNRESET
	}
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	var body io.Reader = &rec.body
	if aborted {
		body = io.MultiReader(&rec.body, cut{})
	}
	return &http.Response{
		Status: http.StatusText(rec.status), StatusCode: rec.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(body), ContentLength: -1, Request: r,
	}, nil
}

// serve reports whether the handler closed the connection in the middle.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (aborted bool) {
	defer func() {
		if p := recover(); p != nil {
			err, isErr := p.(error)
			if !isErr || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			aborted = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// cut is the end of a body that was cut off.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
