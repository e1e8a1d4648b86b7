package telegram

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/retry"
)

const (
	// pollGrace is how long a long poll may take beyond its timeout.
	pollGrace = 10 * time.Second
	// probeTime bounds the short polls after a failure, minPause and maxPause the waits between
	// them. Together they notice a recovered network within 15 seconds.
	probeTime = 4 * time.Second
	minPause  = 500 * time.Millisecond
	maxPause  = 6 * time.Second
	// serverPause is the time until the next attempt of a message after a proxy answered that it
	// cannot reach Telegram.
	serverPause = 3 * time.Second
	// minConflict and maxConflict bound the wait after a conflict: the other poller may be an old
	// process that is just ending.
	minConflict = 5 * time.Second
	maxConflict = 45 * time.Second
	// refusedPause is the time between two attempts with a refused token.
	refusedPause = 5 * time.Minute
	// standbyPause is how often a node that may not poll tries to acquire the lease.
	standbyPause = 3 * time.Second
	// servedPause is how often a node renews the lease of a bot with a webhook.
	servedPause = 10 * time.Second
	// busyPause is the time between two polls while there are unfinished updates, which Telegram
	// returns again at once.
	busyPause = 150 * time.Millisecond
	// batch is the largest number of updates in one answer.
	batch = 100
	// minPollGap is the shortest time between two polls once freePolls answers in a row came
	// earlier without a new update: a server that does not hold long polls would be polled as often
	// as it answers.
	minPollGap = time.Second
	freePolls  = 3
	// restartGap is the shortest time between two restarts of the numbers of updates. Telegram
	// restarts them after a week without updates.
	restartGap = time.Hour
	// leaseTime bounds one call for the lease.
	leaseTime = 5 * time.Second
)

var errLeaseTime = errors.New("the call for the lease took too long")

// pollerConfig are the settings of [Config] for receiving updates.
type pollerConfig struct {
	name                      string // of the channel and its lease
	timeout                   time.Duration
	webhookURL, webhookSecret string
	commands                  []chat.CommandInfo
}

// poller receives updates for one call of Run: it polls, or registers the webhook. Its fields
// belong to the goroutine of Run; it starts no goroutine.
type poller struct {
	cfg      pollerConfig
	api      *client
	identity *identity
	intake   *intake
	conn     *connection
	lease    channel.Receiver // nil in webhook mode
	log      *slog.Logger

	introduced bool // the bot's name is known, and no webhook is set
	failures   int  // in a row
	conflicts  int  // in a row
	leasedAt   time.Time
	early      int // answers in a row that came before minPollGap without a new update
	// top is the highest number of an update since the numbers restarted, which was at restarted.
	top       int
	restarted time.Time
}

// poll polls until ctx is done. Each step renews the lease, introduces the bot once, and makes one
// call; its result determines the wait.
func (p *poller) poll(ctx context.Context) {
	for ctx.Err() == nil {
		if retry.Sleep(ctx, p.step(ctx)) != nil {
			return
		}
	}
}

// serveWebhook registers the webhook and returns when ctx has ended. Updates come through
// [Channel.WebhookHandler]. The lease only shows other processes that the bot is served.
func (p *poller) serveWebhook(ctx context.Context, served channel.Receiver) {
	for ctx.Err() == nil {
		err := p.register(ctx)
		if err == nil {
			p.conn.set(ctx, stateConnected, "")
			for ctx.Err() == nil {
				if _, err := served.Lease(ctx, p.cfg.name); err != nil {
					p.log.DebugContext(ctx, "other processes do not see that the bot is served", "err", err)
				}
				if retry.Sleep(ctx, servedPause) != nil {
					return
				}
			}
			return
		}
		if retry.Sleep(ctx, p.failed(ctx, err)) != nil {
			return
		}
	}
}

// step makes one step of the loop and returns the wait before the next.
func (p *poller) step(ctx context.Context) time.Duration {
	if wait, ok := p.leased(ctx); !ok {
		return wait
	}
	if !p.introduced {
		if err := p.introduce(ctx, true); err != nil {
			return p.failed(ctx, err)
		}
		p.introduced = true
	}
	began, known := time.Now(), p.intake.busy() // Telegram returns unfinished updates again at once
	updates, err := p.fetch(ctx)
	if err != nil {
		return max(p.failed(ctx, err), p.pace(began, false))
	}
	p.failures, p.conflicts = 0, 0
	p.conn.answered(ctx)
	progress := p.progress(p.intake.take(ctx, updates)) || known
	if p.intake.busy() {
		p.intake.rest(ctx)
	}
	return p.pace(began, progress)
}

// pace returns the wait after an answer to the poll that began at that time. After an answer with
// new updates it is zero.
func (p *poller) pace(began time.Time, progress bool) time.Duration {
	wait := minPollGap - time.Since(began)
	if progress || wait <= 0 {
		p.early = 0
		return 0
	}
	if p.early++; p.early < freePolls {
		return 0
	}
	return wait
}

// progress reports whether an answer has new updates. highest is its highest new number, 0 if none.
// A server that keeps returning the same updates makes no progress, even if these are more than the
// intake remembers.
func (p *poller) progress(highest int) bool {
	switch {
	case highest > p.top:
	case highest == 0, !p.restarted.IsZero() && time.Since(p.restarted) < restartGap:
		return false
	default:
		p.restarted = time.Now()
	}
	p.top = highest
	return true
}

// patience returns the bound of a call before the first poll. After a failure it is that of a
// probe: a call that hangs while the network recovers delays the first update by its whole time.
func (p *poller) patience() time.Duration {
	if p.failures > 0 {
		return probeTime
	}
	return pollGrace
}

// leased renews the right to poll, at most once a second. Without it, it returns the wait before
// the next step.
func (p *poller) leased(ctx context.Context) (time.Duration, bool) {
	if time.Since(p.leasedAt) < time.Second {
		return 0, true
	}
	limited, cancel := context.WithTimeoutCause(ctx, leaseTime, errLeaseTime)
	defer cancel()
	ok, err := p.lease.Lease(limited, p.cfg.name)
	switch {
	case ctx.Err() != nil:
		return 0, false
	case err != nil:
		p.conn.set(ctx, stateDegraded, "the database cannot be reached, so it is unknown which node may poll")
		return time.Second, false
	case !ok:
		p.conn.set(ctx, stateStandby, "another node of this gateway polls")
		p.conn.setDown(false)
		p.introduced = false
		return standbyPause, false
	}
	p.leasedAt = time.Now()
	return 0, true
}

// failed records a failure and returns the wait before the next step.
func (p *poller) failed(ctx context.Context, err error) time.Duration {
	var e *apiError
	if !errors.As(err, &e) || ctx.Err() != nil {
		return minPause
	}
	switch e.reason {
	case reasonUnauthorized:
		p.conn.set(ctx, stateDisabled, "Telegram refuses the bot token; get a valid one from @BotFather and restart")
		p.introduced = false
		return refusedPause
	case reasonConflict:
		p.conflicts++
		p.conn.set(ctx, stateConflict, "another program polls with this token, or has set a webhook; stop it")
		return max(minConflict, retry.Policy{Base: minConflict, Max: maxConflict}.Wait(p.conflicts))
	}
	p.failures++
	p.conn.set(ctx, stateDegraded, e.Error())
	p.conn.setDown(e.broken() && p.lease != nil) // only polls can prove later that Telegram is reachable again
	if e.retryAfter > 0 {
		return e.retryAfter
	}
	return retry.Policy{Base: minPause, Max: maxPause}.Wait(p.failures)
}

// introduce reads the bot's name, removes a webhook when the bot polls, and sets the menu. A menu
// that could not be set is not a failure, unless Telegram asks to wait: the wait applies to every
// call.
func (p *poller) introduce(ctx context.Context, polling bool) error {
	var me tgbotapi.User
	if err := p.api.call(ctx, p.patience(), "getMe", nil, &me); err != nil {
		return err
	}
	p.identity.user.Store(&me.UserName)
	if polling {
		if err := p.api.call(ctx, p.patience(), "deleteWebhook", nil, nil); err != nil {
			return err
		}
	}
	if err := p.menu(ctx); asked(err) > 0 {
		return err
	} else if err != nil {
		p.log.WarnContext(ctx, "the menu of commands was not set", "err", err)
	}
	return nil
}

// register introduces the bot and sets its webhook.
func (p *poller) register(ctx context.Context) error {
	if err := p.introduce(ctx, false); err != nil {
		return err
	}
	return p.api.call(ctx, p.patience(), "setWebhook", tgbotapi.Params{
		"url": p.cfg.webhookURL, "secret_token": p.cfg.webhookSecret, "allowed_updates": jsonOf(wanted()), "max_connections": "40",
	}, nil)
}

// fetch makes one getUpdates. After a failure, and while updates are unfinished, it does not wait
// for new ones: its answer is needed soon.
func (p *poller) fetch(ctx context.Context) ([]json.RawMessage, error) {
	timeout, limit := p.cfg.timeout, p.cfg.timeout+pollGrace
	if p.failures > 0 || p.intake.busy() {
		timeout, limit = 0, probeTime
	}
	params := tgbotapi.Params{
		"timeout": strconv.Itoa(int(timeout / time.Second)), "limit": strconv.Itoa(batch), "allowed_updates": jsonOf(wanted()),
	}
	if next := p.intake.offset(); next != 0 {
		params["offset"] = strconv.Itoa(next)
	}
	var updates []json.RawMessage
	err := p.api.call(ctx, limit, "getUpdates", params, &updates)
	return updates, err
}

// wanted are the kinds of updates that the bot requests.
func wanted() []string { return []string{"message", "callback_query"} }

const (
	// maxDelivery is the largest body of a delivery.
	maxDelivery = 1 << 20
	// deliveryTime bounds the answer to a delivery. Telegram repeats a delivery without an answer,
	// and the repetition joins the task of the first.
	deliveryTime = 50 * time.Second
	secretHeader = "X-Telegram-Bot-Api-Secret-Token"
)

// deliveries is the handler of Telegram's webhook calls; see [Channel.WebhookHandler].
type deliveries struct {
	enabled bool // the channel is in webhook mode
	want    [sha256.Size]byte
	intake  *intake
	metrics *Metrics
}

// ServeHTTP implements http.Handler. The hash makes the comparison independent of the length of the
// secret.
func (d *deliveries) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := sha256.Sum256([]byte(r.Header.Get(secretHeader)))
	switch {
	case !d.enabled:
		http.NotFound(w, r)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
	case subtle.ConstantTimeCompare(got[:], d.want[:]) != 1:
		d.metrics.update("refused")
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

// settle waits until an update is durable, at most deliveryTime, and returns the status of the
// answer.
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

// menu sets the commands of Telegram's menu, unless Telegram has them already.
func (p *poller) menu(ctx context.Context) error {
	list := []map[string]string{}
	for _, cmd := range p.cfg.commands {
		description := firstChars(cmd.Description)
		if description != "" && len(cmd.Name) <= 32 && len(list) < 100 {
			list = append(list, map[string]string{"command": cmd.Name, "description": description})
		}
	}
	if len(list) == 0 {
		return nil
	}
	var shown []tgbotapi.BotCommand
	if err := p.api.call(ctx, signTime, "getMyCommands", nil, &shown); err != nil {
		return err
	}
	if sameMenu(shown, list) {
		return nil
	}
	return p.api.call(ctx, signTime, "setMyCommands", tgbotapi.Params{"commands": jsonOf(list)}, nil)
}

// firstChars returns the first 256 characters of a description: Telegram refuses a longer one.
func firstChars(s string) string {
	if r := []rune(s); len(r) > 256 {
		return string(r[:256])
	}
	return s
}

func sameMenu(shown []tgbotapi.BotCommand, list []map[string]string) bool {
	if len(shown) != len(list) {
		return false
	}
	for i, s := range shown {
		if s.Command != list[i]["command"] || s.Description != list[i]["description"] {
			return false
		}
	}
	return true
}
