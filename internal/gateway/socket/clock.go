package socket

import (
	"time"

	"github.com/gorilla/websocket"
)

// clock handles the timed work of the writer: ticks, pings, and the check of their pongs. Only the writer uses it.
type clock struct {
	c          *Conn
	timer      *time.Timer
	ping, tick time.Time
}

// turn does what is due; false = the connection has ended.
func (k *clock) turn(now time.Time) bool {
	k.beat(now)
	if now.Before(k.ping) {
		return k.answered(now)
	}
	k.ping = now.Add(k.c.up.cfg.Deadlines.Ping)
	k.c.pingedAt.CompareAndSwap(0, max(1, int64(now.Sub(k.c.since))))
	if err := k.c.ws.WriteControl(websocket.PingMessage, nil, now.Add(k.c.up.cfg.Deadlines.Write)); err != nil {
		k.c.writeFailed(err)
		return false
	}
	return k.answered(now)
}

// beat queues the tick of an authenticated client.
func (k *clock) beat(now time.Time) {
	if !k.c.authenticated.Load() {
		return
	}
	if k.tick.IsZero() {
		k.tick = k.c.authedAt.Add(k.c.up.cfg.TickEvery)
	}
	if now.Before(k.tick) {
		return
	}
	k.tick = k.tick.Add(k.c.up.cfg.TickEvery)
	k.c.client.Tick(now)
	k.c.renewReader(now)
}

// answered checks for the pong. While a message is being read, the message's own deadline applies: a pong cannot arrive in the middle of
// it.
func (k *clock) answered(now time.Time) bool {
	pinged := k.c.pingedAt.Load()
	if pinged == 0 || k.c.reading.Load() || now.Sub(k.c.since)-time.Duration(pinged) < k.c.up.cfg.Deadlines.Pong {
		return true
	}
	k.c.abandon(&Closing{Reason: ClosedSilent})
	k.c.Cut()
	return false
}

// next returns when the next timed work is due; due is the time of the next item, zero = no item waits.
func (k *clock) next(due time.Time) time.Time {
	next := k.ping
	if !k.tick.IsZero() && k.tick.Before(next) {
		next = k.tick
	}
	if !due.IsZero() && due.Before(next) {
		next = due
	}
	if p := k.c.pingedAt.Load(); p != 0 && !k.c.reading.Load() {
		if pong := k.c.since.Add(time.Duration(p) + k.c.up.cfg.Deadlines.Pong); pong.Before(next) {
			next = pong
		}
	}
	return next
}
