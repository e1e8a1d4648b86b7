package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/conversation"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/openai"
	"laneway/internal/gateway/socket"
	"laneway/internal/wire"
)

// openAIPrefix is the path prefix below which errors have the form of OpenAI.
const openAIPrefix = "/v1/"

// refuse answers with an error in the form of the path: that of OpenAI below /v1, otherwise the
// gateway's own.
func refuse(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	if strings.HasPrefix(r.URL.Path, openAIPrefix) {
		openai.WriteError(w, e.HTTPStatus(), e)
		return
	}
	httpbody.WriteError(w, e.HTTPStatus(), e)
}

// routes returns the handler of all HTTP paths. base is the context of work that outlives a
// request: connections and their calls. waits is done when the gateway starts to stop, which ends
// the requests that still wait for an answer.
func (s *Server) routes(base, waits context.Context) http.Handler {
	r := chi.NewRouter()
	r.Use(answersUnread, s.counted, s.recoverer, middleware.GetHead, s.upgrades(base), s.inTime, s.opened)
	r.Get("/healthz", s.health.healthz)
	r.Get("/health", s.health.healthz)
	r.Get("/readyz", s.health.readyz)
	for path, h := range s.cfg.Webhooks {
		r.With(checkOrigin(s.policy)).Handle(path, provenBy(h))
	}
	if d := s.cfg.Dashboard; d != nil { // browsers send an origin for module scripts, and the files contain no data: a proxy's own origin needs no setting to load them
		page := checkHost(s.policy)(d)
		r.Handle("/dashboard", page)
		r.Handle("/dashboard/*", page)
	}
	r.Group(func(r chi.Router) {
		r.Use(checkHostAndOrigin(s.policy), s.services.held.track)
		r.Get("/", s.root)
		r.Get("/ws", upgradeNeeded)
		s.optional(r)
		r.Post("/v1/chat/completions", s.completions.Completions(waits))
		r.Post("/v1/responses", s.completions.Responses(waits))
		r.Get("/v1/responses/{id}", s.completions.Response())
		r.Delete("/v1/responses/{id}", s.completions.DeleteResponse())
		r.Get("/v1/models", s.completions.Models)
		r.Get("/v1/models/*", s.completions.Model)
		s.files(r)
		r.Method(http.MethodPost, "/hooks/{name}", s.hooks)
	})
	r.NotFound(s.guarded(notFound))
	r.MethodNotAllowed(s.guarded(methodNotAllowed(r)))
	return r
}

// files adds the routes of uploaded files, if they are stored.
func (s *Server) files(r chi.Router) {
	if s.cfg.Files == nil {
		return
	}
	r.Post("/v1/files", s.uploads.Upload())
	r.Get("/v1/files", s.uploads.ListFiles())
	r.Get("/v1/files/{id}", s.uploads.File())
	r.Delete("/v1/files/{id}", s.uploads.DeleteFile())
	r.Get("/v1/files/{id}/content", s.uploads.FileContent())
	r.Get(conversation.MessageFilePath, s.uploads.MessageFile(s.messageFile))
}

// messageFile returns the file of a conversation that a query names.
func (s *Server) messageFile(ctx context.Context, cred auth.Credential, query url.Values) (chat.Attachment, error) {
	at, ok := conversation.ParseFilePlace(query, s.backend.DefaultAgent())
	if !ok {
		return chat.Attachment{}, fault.Invalid("this address does not name a file; chat.history has the addresses")
	}
	return conversation.MessageFile(ctx, s.backend, cred, at)
}

func (s *Server) optional(r chi.Router) {
	if s.tools != nil {
		r.Handle("/mcp", s.tools)
	}
	if m := s.cfg.MetricsOnMain; m != nil {
		r.Get("/metrics", func(w http.ResponseWriter, r *http.Request) {
			if _, ok := s.services.Bearer(w, r, chat.ScopeRead); ok {
				m.ServeHTTP(w, r)
			}
		})
	}
}

// guarded adds the Host and Origin checks to an answer outside of the routes.
func (s *Server) guarded(h http.HandlerFunc) http.HandlerFunc {
	return checkHostAndOrigin(s.policy)(h).ServeHTTP
}

func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Dashboard == nil {
		notFound(w, r)
		return
	}
	w.Header().Set("Location", "dashboard/") // relative, because a proxy may serve the gateway below a path
	w.WriteHeader(http.StatusFound)
}

func upgradeNeeded(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Upgrade", "websocket")
	w.Header().Set("Connection", "Upgrade")
	httpbody.WriteError(w, http.StatusUpgradeRequired, fault.Invalid("this path speaks WebSocket only"))
}

func notFound(w http.ResponseWriter, r *http.Request) {
	refuse(w, r, fault.Invalid("no such path").WithStatus(http.StatusNotFound))
}

func methodNotAllowed(r chi.Routes) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var allowed []string
		for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if r.Match(chi.NewRouteContext(), m, req.URL.Path) {
				allowed = append(allowed, m)
			}
		}
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		if preflight(w.Header(), req, allowed) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		refuse(w, req, fault.Invalid("this path does not take "+fault.CutName(req.Method)).WithStatus(http.StatusMethodNotAllowed))
	}
}

// preflight reports whether a browser asks before a request of a page whether it may send it, and
// adds the answer. The check of the origin has passed and has set its header, if the page has an
// allowed origin. Only the paths of OpenAI's API are for pages of other origins.
func preflight(answer http.Header, r *http.Request, methods []string) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" || answer.Get("Access-Control-Allow-Origin") == "" ||
		!strings.HasPrefix(r.URL.Path, openAIPrefix) {
		return false
	}
	answer.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" { // none of them is a credential that a browser adds by itself
		answer.Set("Access-Control-Allow-Headers", names)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" { // a public page, and a gateway in the network of its reader
		answer.Set("Access-Control-Allow-Private-Network", "true")
	}
	answer.Add("Vary", "Access-Control-Request-Headers")
	answer.Set("Access-Control-Max-Age", "600")
	return true
}

// counted counts each request except sockets, by the pattern of its route: a path of a client must
// not become a label.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if websocket.IsWebSocketUpgrade(r) {
			next.ServeHTTP(w, r)
			return
		}
		began, answer := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(answer, r)
		route := chi.RouteContext(r.Context()).RoutePattern()
		s.counters.httpRequest(cmp.Or(route, "none"), cmp.Or(answer.Status(), http.StatusOK), time.Since(began))
	})
}

func (s *Server) recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				s.log.ErrorContext(r.Context(), "http handler panicked", slog.Any("value", v), slog.String("path", r.URL.Path))
				refuse(w, r, fault.New(wire.CodeUnavailable, "internal error").WithStatus(http.StatusInternalServerError))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// opened replaces every route except the probes while the gateway starts.
func (s *Server) opened(next http.Handler) http.Handler {
	wait := s.guarded(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, fault.Starting())
	})
	probes := []string{"/healthz", "/health", "/readyz"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.state.ready() || slices.Contains(probes, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		wait(w, r)
	})
}

// upgrades serves WebSocket upgrades before every other route.
func (s *Server) upgrades(base context.Context) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !websocket.IsWebSocketUpgrade(r):
				next.ServeHTTP(w, r)
			case r.URL.Path != "/" && r.URL.Path != "/ws":
				s.guarded(notFound)(w, r)
			case r.Method != http.MethodGet:
				next.ServeHTTP(w, r)
			default:
				s.upgrade(base, w, r)
			}
		})
	}
}

// inTime limits the time in which the body of a request arrives, whether or not a handler reads it.
// Without a limit, an unauthenticated client could keep a connection for ever by sending the body
// of a refused request one byte at a time. [httpbody.Read] lifts it for answers that take long.
func (s *Server) inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpbody.SetReadDeadline(w, s.cfg.Deadlines.Message)
		next.ServeHTTP(w, r)
	})
}

// answersUnread lets a client read the answer to a request whose body was not fully read. Closing a
// TCP connection with unread bytes resets it, and a reset destroys an answer that is still in
// transit. The HTTP server waits for half a second before it closes such a connection, but not for
// requests with `Connection: close`, which proxies send. A reader that exceeds its limit makes the
// server wait in that case, too. It reads one byte itself, because the next byte of the body may
// still be in transit. answersUnread is the outermost handler, because this works only with the
// server's own writer.
func answersUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body
		next.ServeHTTP(w, r)
		if !r.Close || r.ContentLength == 0 {
			return
		}
		httpbody.SetReadDeadline(w, -time.Second) // bytes that have not arrived count as unread
		if _, err := body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("unread")), 0).Read(make([]byte, 1)) // it always exceeds its limit
		}
	})
}

// upgrade opens a socket, or refuses it. It checks capacity, Host, Origin and version, in this
// order.
func (s *Server) upgrade(base context.Context, w http.ResponseWriter, r *http.Request) {
	addr := s.policy.ClientAddr(r)
	place, oldest := s.hub.Reserve(auth.Network(addr), s.unauthenticatedFrom(addr))
	if oldest != nil {
		oldest.Conn().End(&socket.Closing{
			Code: websocket.CloseTryAgainLater, Text: "too many connections that have not authenticated", Reason: socket.ClosedUnauthenticated,
		})
	}
	if place == nil {
		httpbody.WriteError(w, http.StatusServiceUnavailable, fault.Unavailable(wire.DetailTooManyConnections, "too many open connections", 1e9))
		return
	}
	e := s.policy.CheckHost(r)
	if e == nil {
		e = s.policy.CheckOrigin(w.Header(), r)
	}
	if e == nil {
		e = checkVersion(w.Header(), r)
	}
	if e != nil {
		s.hub.Release(place)
		refuse(w, r, e)
		return
	}
	conn, err := s.sockets.Upgrade(w, r)
	if err != nil {
		s.hub.Release(place)
		s.log.DebugContext(r.Context(), "upgrade failed", slog.Any("err", err))
		return
	}
	c := s.newClient(conn, addr)
	if !s.hub.Add(c, place) {
		s.hub.Release(place)
		conn.Cut()
		return
	}
	s.counters.conns.Inc()
	c.challenge()
	c.Serve(base, c) // on its own goroutines, so that the HTTP server's memory of the request is freed
}

// unauthenticatedFrom returns how many sockets of an address may be unauthenticated. All programs
// of this machine share loopback, and the clients of a proxy that does not state their addresses
// share its address.
func (s *Server) unauthenticatedFrom(addr netip.Addr) int {
	if addr.IsLoopback() || s.policy.Trusted(addr) {
		return max(s.cfg.MaxUnauthenticatedShared, s.cfg.MaxUnauthenticatedPerAddr)
	}
	return s.cfg.MaxUnauthenticatedPerAddr
}

// checkOrigin refuses pages of other origins.
func checkOrigin(policy *auth.RequestPolicy) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if e := policy.CheckOrigin(w.Header(), r); e != nil {
				refuse(w, r, e)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// checkHostAndOrigin refuses requests with a host name that is not allowed, and pages of other
// origins.
func checkHostAndOrigin(policy *auth.RequestPolicy) func(http.Handler) http.Handler {
	host, origin := checkHost(policy), checkOrigin(policy)
	return func(next http.Handler) http.Handler { return host(origin(next)) }
}

// checkHost refuses requests with a host name that is not allowed.
func checkHost(policy *auth.RequestPolicy) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if e := policy.CheckHost(r); e != nil {
				refuse(w, r, e)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func checkVersion(answer http.Header, r *http.Request) *fault.Error {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	if r.Header.Get("Sec-WebSocket-Version") == "13" && err == nil && len(key) == 16 {
		return nil
	}
	answer.Set("Sec-WebSocket-Version", "13")
	return fault.Invalid("a WebSocket upgrade needs version 13 and a valid key")
}

// provenBy wraps a handler that authenticates its callers itself: a caller with a successful
// response was authenticated.
func provenBy(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		h.ServeHTTP(seen, r)
		if seen.Status() < http.StatusMultipleChoices { // 0 = nothing was written, which means 200
			socket.Authenticated(r)
		}
	})
}

// httpServices implements what the handlers of completions and hooks need of the server.
type httpServices struct {
	*lifecycle
	*reporter

	auth    *auth.Authenticator
	policy  *auth.RequestPolicy
	backend Backend

	inFlight *inflight.Limiter
	held     heldRequests
}

// Share returns the requests in flight of a principal; own: it sees only its own sessions.
func (h *httpServices) Share(principal string, own bool) *inflight.Share {
	return h.inFlight.Of(principal, own)
}

// Bearer identifies the client of a request, whose context ends with the credential. It answers a
// refused request itself.
func (h *httpServices) Bearer(w http.ResponseWriter, r *http.Request, scope string) (auth.Credential, bool) {
	cred, e := h.auth.Bearer(r, h.policy.ClientAddr(r), scope)
	if e == nil {
		socket.Authenticated(r)
		h.held.show(r, cred)
		return cred, true
	}
	if e.HTTPStatus() == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	refuse(w, r, e)
	return cred, false
}

// MayUse returns an error for a session that the principal may not write into.
func (h *httpServices) MayUse(ctx context.Context, cred auth.Credential, key chat.SessionKey) error {
	return conversation.MayUse(ctx, h.backend, cred, key)
}

// Verified records whether the caller of a hook was authenticated.
func (h *httpServices) Verified(r *http.Request, ok bool) {
	if !ok {
		h.auth.HookRefused()
		return
	}
	socket.Authenticated(r)
}
