package telegram

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// maxDelivery is the largest body of a delivery.
	maxDelivery = 1 << 20
	// deliveryTime bounds the answer to a delivery. Telegram repeats a delivery without an answer, and the repetition joins the task of the first.
	deliveryTime = 50 * time.Second
	secretHeader = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // the name of a header
)

// deliveries is the handler of Telegram's webhook calls; see [Channel.WebhookHandler].
type deliveries struct {
	enabled bool // the channel is in webhook mode
	want    [sha256.Size]byte
	intake  *intake
	obs     Observer
}

// ServeHTTP implements http.Handler. The hash makes the comparison independent of the length of the secret.
func (d *deliveries) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := sha256.Sum256([]byte(r.Header.Get(secretHeader)))
	switch {
	case !d.enabled:
		http.NotFound(w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
	case subtle.ConstantTimeCompare(got[:], d.want[:]) != 1:
		d.obs.Update("refused")
		http.Error(w, "wrong secret", http.StatusUnauthorized)
	default:
		d.accept(w, r)
	}
}

// accept reads one update and answers after it is settled.
func (d *deliveries) accept(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, "the body is larger than 1 MiB", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body broke off", http.StatusBadRequest)
		return
	}
	u, err := decode(body)
	switch {
	case u.id == 0:
		http.Error(w, "this is no update", http.StatusBadRequest)
		return
	case err != nil: // a second delivery would change nothing
		d.intake.park(r.Context(), u.id, err)
		w.WriteHeader(http.StatusOK)
		return
	}
	w.WriteHeader(d.settle(r, u))
}

// settle waits until an update is durable, at most deliveryTime, and returns the status of the answer.
func (d *deliveries) settle(r *http.Request, u update) int {
	task, err := d.intake.deliver(u)
	if err != nil {
		return http.StatusServiceUnavailable
	}
	t := time.NewTimer(deliveryTime)
	defer t.Stop()
	select {
	case <-task.done:
		if task.err == nil {
			return http.StatusOK
		}
	case <-t.C:
	case <-r.Context().Done():
	}
	return http.StatusServiceUnavailable
}
