package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/retry"
)

const (
	// pollGrace is what a long poll may take beyond its timeout.
	pollGrace = 10 * time.Second
	// probeTime bounds the short polls after a failure: together with maxPause a healed network is noticed within 15 seconds.
	probeTime = 4 * time.Second
	minPause  = 500 * time.Millisecond
	maxPause  = 6 * time.Second
	// serverPause is the time to the next attempt at a message that met a server which is away.
	serverPause = 3 * time.Second
	// Another poller is given more time: it may be an old process that is just ending.
	minConflict = 5 * time.Second
	maxConflict = 45 * time.Second
	// refusedPause is how long a refused token is left alone.
	refusedPause = 5 * time.Minute
	// standbyPause is how often a node that may not poll asks whether it may.
	standbyPause = 3 * time.Second
	// busyPause is the time between two polls while updates are still being worked on, which Telegram returns again at once.
	busyPause = 150 * time.Millisecond
	batch     = 100
	// hastyPause is the least distance of two polls once hastyFree answers in a row came before it had passed and brought nothing new: a server
	// that does not wait is not asked as often as it answers.
	hastyPause = time.Second
	hastyFree  = 3
	// restartGap is the least time between two restarts of the numbers of updates. Telegram begins anew after a week of silence.
	restartGap = time.Hour
	// leaseTime bounds the question for the lease.
	leaseTime = 5 * time.Second
)

var errLeaseTime = errors.New("asking for the lease took too long")

// poll is the loop. Each round asks for the lease, introduces itself once, and makes one call; how that went decides what comes next.
func (c *Channel) poll(ctx context.Context, receiver channel.Receiver) {
	r := round{c: c, receiver: receiver}
	for ctx.Err() == nil {
		if retry.Sleep(ctx, r.turn(ctx)) != nil {
			return
		}
	}
}

// round is what the poll loop remembers. It belongs to the loop alone.
type round struct {
	c        *Channel
	receiver channel.Receiver // nil in webhook mode
	ready    bool             // introduced, and the webhook is gone
	failures int
	conflict int
	asked    time.Time // last confirmation of the lease
	hasty    int       // answers in a row that came too fast and brought nothing new
	// top is the highest number of an update since the numbers began anew, which was at restarted.
	top       int
	restarted time.Time
}

// turn makes one step and says how long to wait before the next.
func (r *round) turn(ctx context.Context) time.Duration {
	if wait, ok := r.leased(ctx); !ok {
		return wait
	}
	if !r.ready {
		if err := r.c.introduce(ctx, true, r.patience()); err != nil {
			return r.failed(ctx, err)
		}
		r.ready = true
	}
	began, known := time.Now(), r.c.intake.busy() // while updates are worked on, Telegram returns them again at once
	updates, err := r.c.fetch(ctx, r.failures > 0)
	if err != nil {
		return max(r.failed(ctx, err), r.pace(began, false))
	}
	r.failures, r.conflict = 0, 0
	r.c.answered(ctx)
	progress := r.progress(r.c.intake.take(ctx, updates)) || known
	if r.c.intake.busy() {
		r.c.intake.rest(ctx)
	}
	return r.pace(began, progress)
}

// pace is how long to wait after an answer to the poll that began then. An answer with something new is never followed by a wait.
func (r *round) pace(began time.Time, progress bool) time.Duration {
	early := hastyPause - time.Since(began)
	if progress || early <= 0 {
		r.hasty = 0
		return 0
	}
	if r.hasty++; r.hasty < hastyFree {
		return 0
	}
	return early
}

// progress reports whether an answer whose highest new number is given (0 = none) brings the poller further. A server that sends the same updates
// again and again does not, also when there are more of them than the intake remembers.
func (r *round) progress(highest int) bool {
	switch {
	case highest > r.top:
	case highest == 0, !r.restarted.IsZero() && time.Since(r.restarted) < restartGap:
		return false
	default:
		r.restarted = time.Now()
	}
	r.top = highest
	return true
}

// patience is how long a call may take that is made before the first poll. After a failure it is that of a probe: a call that hangs while the
// network heals delays the first update by its whole time.
func (r *round) patience() time.Duration {
	if r.failures > 0 {
		return probeTime
	}
	return pollGrace
}

// leased confirms the right to poll, at most once a second.
func (r *round) leased(ctx context.Context) (time.Duration, bool) {
	if time.Since(r.asked) < time.Second {
		return 0, true
	}
	ask, cancel := context.WithTimeoutCause(ctx, leaseTime, errLeaseTime)
	defer cancel()
	_, ok, err := r.receiver.Lease(ask, r.c.name)
	switch {
	case ctx.Err() != nil:
		return 0, false
	case err != nil:
		r.c.stand(ctx, stateDegraded, "the database cannot be reached, so nobody knows which node may poll")
		return time.Second, false
	case !ok:
		r.c.stand(ctx, stateStandby, "another node of this gateway polls")
		r.c.setDown(false)
		r.ready = false
		return standbyPause, false
	}
	r.asked = time.Now()
	return 0, true
}

// failed records a failure and says how long to leave Telegram alone.
func (r *round) failed(ctx context.Context, err error) time.Duration {
	var e *apiError
	if !errors.As(err, &e) || ctx.Err() != nil {
		return minPause
	}
	switch e.reason {
	case reasonUnauthorized:
		r.c.stand(ctx, stateDisabled, "Telegram refuses the bot token; get a valid one from @BotFather and restart")
		r.ready = false
		return refusedPause
	case reasonConflict:
		r.conflict++
		r.c.stand(ctx, stateConflict, "another program polls with this token, or has set a webhook; stop it")
		return max(minConflict, retry.Policy{Base: minConflict, Max: maxConflict}.Wait(r.conflict))
	}
	r.failures++
	r.c.stand(ctx, stateDegraded, e.Error())
	r.c.setDown(e.broken() && r.receiver != nil)
	if e.retryAfter > 0 {
		return e.retryAfter
	}
	return retry.Policy{Base: minPause, Max: maxPause}.Wait(r.failures)
}

// answered records a completed poll: it alone counts as a sign of life.
func (c *Channel) answered(ctx context.Context) {
	c.stand(ctx, stateConnected, "")
	c.mu.Lock()
	c.polled, c.down = time.Now(), false
	c.mu.Unlock()
}

// introduce learns the bot's name, makes polling possible and sets the menu. The menu need not succeed, unless Telegram asks to wait. limit bounds
// each call.
func (c *Channel) introduce(ctx context.Context, polling bool, limit time.Duration) error {
	var me tgbotapi.User
	if err := c.api.call(ctx, limit, "getMe", nil, &me); err != nil {
		return err
	}
	c.me.Store(&me.UserName)
	if polling {
		if err := c.api.call(ctx, limit, "deleteWebhook", nil, nil); err != nil {
			return err
		}
	}
	if err := c.menu(ctx); asked(err) > 0 { // the wait is for every call
		return err
	} else if err != nil {
		c.log.WarnContext(ctx, "the menu of commands was not set", "err", err)
	}
	return nil
}

// fetch makes one getUpdates. After a failure it does not wait for updates, so that an answer shows quickly that all is well again.
func (c *Channel) fetch(ctx context.Context, probe bool) ([]json.RawMessage, error) {
	timeout, limit := c.cfg.PollTimeout, c.cfg.PollTimeout+pollGrace
	if probe || c.intake.busy() {
		timeout, limit = 0, probeTime
	}
	params := tgbotapi.Params{
		"timeout": strconv.Itoa(int(timeout / time.Second)), "limit": strconv.Itoa(batch), "allowed_updates": jsonOf(wanted()),
	}
	if next := c.intake.offset(); next != 0 {
		params["offset"] = strconv.Itoa(next)
	}
	var updates []json.RawMessage
	err := c.api.call(ctx, limit, "getUpdates", params, &updates)
	return updates, err
}

// wanted are the kinds of updates that Telegram is asked for.
func wanted() []string { return []string{"message", "callback_query"} }

// menu shows the commands in Telegram's menu. Telegram itself is asked what it shows, so a table that did not change is not set again.
func (c *Channel) menu(ctx context.Context) error {
	list := []map[string]string{}
	for _, cmd := range c.commands {
		description := chat256(cmd.Description)
		if description != "" && len(cmd.Name) <= 32 && len(list) < 100 {
			list = append(list, map[string]string{"command": cmd.Name, "description": description})
		}
	}
	if len(list) == 0 {
		return nil
	}
	var shown []tgbotapi.BotCommand
	if err := c.api.call(ctx, signTime, "getMyCommands", nil, &shown); err != nil {
		return err
	}
	if same(shown, list) {
		return nil
	}
	return c.api.call(ctx, signTime, "setMyCommands", tgbotapi.Params{"commands": jsonOf(list)}, nil)
}

// chat256 is a description as long as Telegram takes it.
func chat256(s string) string {
	if r := []rune(s); len(r) > 256 {
		return string(r[:256])
	}
	return s
}

func same(shown []tgbotapi.BotCommand, list []map[string]string) bool {
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

// serveWebhook tells Telegram where to deliver and keeps the state until the end. Updates come through WebhookHandler.
func (c *Channel) serveWebhook(ctx context.Context) {
	r := round{c: c}
	for ctx.Err() == nil {
		err := c.introduce(ctx, false, r.patience())
		if err == nil {
			err = c.api.call(ctx, r.patience(), "setWebhook", tgbotapi.Params{
				"url": c.cfg.WebhookURL, "secret_token": c.cfg.WebhookSecret, "allowed_updates": jsonOf(wanted()), "max_connections": "40",
			}, nil)
		}
		if err == nil {
			c.stand(ctx, stateConnected, "")
			<-ctx.Done()
			return
		}
		if retry.Sleep(ctx, r.failed(ctx, err)) != nil {
			return
		}
	}
}

// httpStatusOf is what Telegram's delivery is told.
func httpStatusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
