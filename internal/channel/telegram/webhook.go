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
	// deliveryTime is how long Telegram is kept waiting. What is not settled then is delivered again and found to be known.
	deliveryTime = 50 * time.Second
	secretHeader = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // the name of a header
)

// WebhookHandler takes Telegram's deliveries; the gateway mounts it at /telegram/webhook/{account}. It answers 401 before it reads anything
// when the secret is wrong, 413 above 1 MiB, 400 for what is no update, 503 while the message cannot be kept, and 200 only when it
// is durable or there is nothing to keep. In polling mode everything is 404.
func (c *Channel) WebhookHandler() http.Handler {
	want := sha256.Sum256([]byte(c.cfg.WebhookSecret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get(secretHeader)))
		switch {
		case c.cfg.Mode != ModeWebhook:
			http.NotFound(w, r)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			c.obs.Update("refused")
			http.Error(w, "wrong secret", http.StatusUnauthorized)
		default:
			c.serveDelivery(w, r)
		}
	})
}

func (c *Channel) serveDelivery(w http.ResponseWriter, r *http.Request) {
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
	case err != nil: // delivering it again would change nothing
		c.intake.park(r.Context(), &job{update: u}, err)
		w.WriteHeader(http.StatusOK)
		return
	}
	w.WriteHeader(c.settle(r, u))
}

// settle waits until an update is durable and gives the status for it.
func (c *Channel) settle(r *http.Request, u update) int {
	j, err := c.intake.deliver(u)
	if err != nil {
		return http.StatusServiceUnavailable
	}
	t := time.NewTimer(deliveryTime)
	defer t.Stop()
	select {
	case <-j.done:
		return httpStatusOf(j.err)
	case <-t.C:
	case <-r.Context().Done():
	}
	return http.StatusServiceUnavailable
}
