package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// incoming is a message with everything that can be computed outside of the writer's transaction.
type incoming struct {
	store.AcceptParams
	body, sender string
	// keepSettings leaves a session that exists as it is: its lane and its limit of runs do not follow this message.
	keepSettings bool
}

func (in *incoming) encode() (err error) {
	if in.body, err = encode(in.Message.Content); err != nil {
		return err
	}
	in.sender, err = encode(in.Message.Content.Sender)
	return err
}

// Accept makes a message durable; see the port.
func (s *Store) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	if p.Message.ID == "" || p.Message.Session.IsZero() {
		return store.Accepted{}, chat.Errorf(chat.CodeInvalid, "a message needs an id and a session")
	}
	in := incoming{AcceptParams: p}
	if err := in.encode(); err != nil {
		return store.Accepted{}, err
	}
	return result(ctx, s.write, ordinary("accept a message"), func(ctx context.Context, t *tx) (store.Accepted, error) {
		return t.accept(ctx, &in)
	})
}

// accept inserts the row before it looks at the queue, so that the unique indexes find a duplicate also when the queue is full, and the
// usual case needs no statement for duplicates.
func (t *tx) accept(ctx context.Context, in *incoming) (out store.Accepted, err error) {
	if err := t.moveOffset(ctx, in.Offset); err != nil {
		return out, err
	}
	r, found, err := t.find(ctx, in.Message.Session)
	if err != nil {
		return out, err
	}
	if !found {
		// A new session must not come from a duplicate whose session was deleted.
		if old, known, err := t.findDuplicate(ctx, &in.Message); err != nil || known {
			return t.duplicate(ctx, in.Node, old, err)
		}
		if r, out.Created, err = t.findOrMake(ctx, in.Message.Session, in.Message.Principal); err != nil {
			return out, err
		}
	}
	if in.Own && r.principal != in.Message.Principal {
		return out, chat.ErrSessionNotFound
	}
	fresh, err := t.insert(ctx, in, r)
	if err != nil {
		return out, err
	}
	if !fresh {
		old, known, err := t.findDuplicate(ctx, &in.Message)
		if err == nil && !known {
			err = fmt.Errorf("sequence number %d of %s is in use", r.lastSeq+1, r.key)
		}
		return t.duplicate(ctx, in.Node, old, err)
	}
	err = t.admit(ctx, in, r, &out)
	return out, err
}

// insert writes the row under the next number of the session; fresh is false when a unique index knows it.
func (t *tx) insert(ctx context.Context, in *incoming, r *row) (fresh bool, err error) {
	state, outcome, reason, endedAt := store.StateWaiting, "", "", int64(0)
	switch {
	case in.Unqueued:
		state, outcome, reason, endedAt = store.StateDone, string(chat.OutcomeAnswered), store.ReasonCommand, t.now
	case in.Joins:
		state = store.StateHeld
	}
	m := &in.Message
	n, err := t.exec(ctx, `
		INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane,
			state, outcome, reason, node, accepted_at, ended_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		r.key, r.lastSeq+1, m.ID, null(m.Dedupe), m.ParamsHash, m.Channel, m.ExternalID, m.Principal, in.sender, in.body, m.Lane,
		state, null(outcome), reason, in.Node, t.now, zero(endedAt))
	return n == 1, err
}

// admit applies the new row to the session: bound of the queue, ownership, debounce window.
func (t *tx) admit(ctx context.Context, in *incoming, r *row, out *store.Accepted) (err error) {
	behind := r.waiting
	if !in.Unqueued {
		if err = t.endExcess(ctx, in, r, out); err != nil {
			return err
		}
		if err := t.takeIdle(ctx, in, r); err != nil {
			return err
		}
		r.waiting++
		if !in.keepSettings {
			r.runLimit = int64(max(in.RunLimit, 1))
		}
		if in.Hold > 0 {
			r.debounceUntil = max(r.debounceUntil, t.now+wait(in.Hold))
		}
	}
	out.Behind = int(behind)
	ended := in.Unqueued || len(out.Dropped)+len(out.Superseded) > 0
	r.lastSeq++
	r.lastMessageAt = t.now
	if !in.keepSettings || out.Created {
		r.lane = in.Message.Lane
	}
	if ended {
		if _, err := t.settle(ctx, r); err != nil {
			return err
		}
	}
	if err := t.save(ctx, r); err != nil {
		return err
	}
	out.Seq, out.AcceptedAt = r.lastSeq, instant(t.now)
	r.describe(out, in.Node)
	return nil
}

// endExcess refuses the new message, drops the oldest waiting ones, or lets an interrupt end all of them. The new row is in the table
// already and does not count: its number is higher than last_seq. Only messages that wait for a turn of their own count: neither held
// messages, which belong to the turn of another one, nor those that have a slot already although their Start is still to come.
// sessions.waiting counts held ones too, so it only proves that there is a place, which is the usual case.
func (t *tx) endExcess(ctx context.Context, in *incoming, r *row, out *store.Accepted) error {
	if in.Cap <= 0 || in.Joins || r.waiting < int64(in.Cap) {
		return nil
	}
	starting, err := encode(append([]int64{}, in.Starting...))
	if err != nil {
		return err
	}
	rows, err := t.query(ctx, `SELECT `+messageColumns+` FROM inbox
		WHERE session_key = ? AND state <> 'done' AND state IN ('held', 'waiting') AND seq <= ? AND seq NOT IN (SELECT value FROM json_each(?))
		ORDER BY seq`, r.key, r.lastSeq, starting)
	all, err := collect(rows, err, scanMessage)
	if err != nil {
		return err
	}
	queued := slices.DeleteFunc(slices.Clone(all), func(m store.Waiting) bool { return m.State == store.StateHeld })
	over := len(queued) + 1 - in.Cap
	switch {
	case over <= 0:
		return nil
	case in.Interrupts(chat.QueueMode(r.mode)):
		out.Superseded = all
		return t.end(ctx, r, all, ending{outcome: chat.OutcomeSuperseded, reason: store.ReasonSuperseded})
	case in.Drop == chat.DropNew:
		return chat.ErrQueueFull
	}
	out.Dropped = queued[:over]
	return t.end(ctx, r, out.Dropped, ending{outcome: chat.OutcomeDropped, reason: string(chat.FailQueueFull), notice: in.DropNotice})
}

// takeIdle makes the accepting node the owner of a session that no live node owns. A session with older unfinished messages is left to the
// sweep: only the sweep moves all of them to the new owner, with the runs that had begun.
func (t *tx) takeIdle(ctx context.Context, in *incoming, r *row) error {
	if !in.Take || r.ownerAlive || !r.idle() {
		return nil
	}
	var free int
	err := t.one(ctx, `SELECT count(*) FROM nodes WHERE id = ? AND lease_until > ? AND draining = 0`, in.Node, t.now).Scan(&free)
	if err != nil || free == 0 {
		return err
	}
	if r.owner != "" { // the owner is dead: a run that it was stopping has no goroutine any more
		if err := t.endStoppingOfDead(ctx); err != nil {
			return err
		}
	}
	r.owner, r.ownerAlive = in.Node, true
	r.epoch++
	return nil
}

func (r *row) describe(out *store.Accepted, node string) {
	out.Owner, out.Epoch, out.Mine = r.owner, r.epoch, r.owner != "" && r.owner == node
	out.SessionID, out.Principal, out.Mode = r.id, r.principal, chat.QueueMode(r.mode)
}

// keyed is a message with its idempotency key.
type keyed struct {
	store.Waiting
	dedupe, hash string
}

// findDuplicate finds the message with the same key, or returns chat.ErrKeyReused when the key names another one. The dedupe key decides
// before the id.
func (t *tx) findDuplicate(ctx context.Context, m *chat.Message) (old *keyed, known bool, err error) {
	const columns = `SELECT ` + messageColumns + `, coalesce(dedupe, ''), params_hash FROM inbox WHERE `
	old = &keyed{}
	fields := append(messageFields(&old.Waiting), &old.dedupe, &old.hash)
	err = sql.ErrNoRows
	if m.Dedupe != "" {
		err = t.one(ctx, columns+`dedupe = ?`, m.Dedupe).Scan(fields...)
	}
	if none(err) {
		err = t.one(ctx, columns+`message_id = ?`, m.ID).Scan(fields...)
	}
	switch {
	case none(err):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case old.dedupe != m.Dedupe, old.hash != "" && m.ParamsHash != "" && old.hash != m.ParamsHash:
		return nil, false, chat.ErrKeyReused
	default:
		return old, true, nil
	}
}

// duplicate is the result for a message that was accepted before. It passes err through.
func (t *tx) duplicate(ctx context.Context, node string, old *keyed, err error) (store.Accepted, error) {
	if err != nil {
		return store.Accepted{}, err
	}
	out := store.Accepted{Seq: old.Seq, AcceptedAt: old.AcceptedAt, Duplicate: true, Existing: old.Waiting}
	r, ok, err := t.find(ctx, old.Session)
	if ok {
		r.describe(&out, node)
	}
	return out, err
}
