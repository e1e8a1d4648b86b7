package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"laneway/internal/channel"
)

const (
	setActivationSQL = `INSERT INTO channel_groups (channel, chat_id, activation) VALUES ($1, $2, $3)
		ON CONFLICT (channel, chat_id) DO UPDATE SET activation = excluded.activation`

	moveGroupSQL = `INSERT INTO channel_groups (channel, chat_id, activation, moved_from)
		VALUES ($1, $2, COALESCE((SELECT activation FROM channel_groups WHERE channel = $1 AND chat_id = $3), ''), $3)
		ON CONFLICT (channel, chat_id) DO UPDATE SET moved_from = excluded.moved_from,
			activation = CASE WHEN channel_groups.activation = '' THEN excluded.activation ELSE channel_groups.activation END`

	putButtonSQL = `INSERT INTO buttons (id, set_id, channel, chat_id, user_id, text, expires_at) VALUES ($2, $3, $4, $5, $6, $7, ` + nowSQL + ` + $8)`

	readButtonSQL = `SELECT set_id, channel, chat_id, user_id, text, COALESCE(used_by, 0) FROM buttons WHERE id = $2 AND expires_at > ` + nowSQL
)

// groupFact reads one column of a group; the zero value when nothing is kept.
func groupFact[T any](ctx context.Context, s *Store, doing, sql string, args ...any) (fact T, err error) {
	err = s.do(ctx, doing, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, sql, args...).Scan(&fact)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return fact, err
}

// GroupActivation is what was chosen for a group.
func (s *Store) GroupActivation(ctx context.Context, of string, chatID int64) (string, error) {
	return groupFact[string](ctx, s, "reading what was chosen for a group", `SELECT activation FROM channel_groups WHERE channel = $1 AND chat_id = $2`, of, chatID)
}

// GroupBefore is the number that a group had before.
func (s *Store) GroupBefore(ctx context.Context, of string, chatID int64) (int64, error) {
	return groupFact[int64](ctx, s, "reading what a group was", `SELECT moved_from FROM channel_groups WHERE channel = $1 AND chat_id = $2`, of, chatID)
}

// SetGroupActivation keeps what was chosen for a group.
func (s *Store) SetGroupActivation(ctx context.Context, of string, chatID int64, activation string) error {
	return s.do(ctx, "keeping what was chosen for a group", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, setActivationSQL, of, chatID, clean(activation))
		return err
	})
}

// MoveGroup keeps the new number of a group; what was chosen for the old one goes along, unless something was chosen for the new one.
func (s *Store) MoveGroup(ctx context.Context, of string, from, to int64) error {
	return s.do(ctx, "keeping the new number of a group", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, moveGroupSQL, of, to, from)
		return err
	})
}

// PutButtons keeps the buttons of one message.
func (s *Store) PutButtons(ctx context.Context, set channel.ButtonSet) error {
	setID, err := newID()
	if err != nil {
		return err
	}
	return s.within(ctx, "keeping buttons", func(ctx context.Context, tx pgx.Tx) error {
		if err := onlyOne(ctx, tx, "buttons", set.Channel); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM buttons WHERE expires_at <= `+nowSQL, s.clock()); err != nil {
			return err
		}
		var open int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM buttons WHERE channel = $1`, set.Channel).Scan(&open); err != nil {
			return err
		}
		if open+len(set.Texts) > channel.MaxButtons {
			return channel.ErrButtonsFull
		}
		b := &pgx.Batch{}
		for id, text := range set.Texts {
			b.Queue(putButtonSQL, s.clock(), id, setID, set.Channel, set.ChatID, set.UserID, clean(text), channel.ButtonLife.Milliseconds())
		}
		return send(ctx, tx, b)
	})
}

// TakeButton reads a button, marks it as used and removes the others of its set. Presses of one account's buttons are serialised, so that
// the second of two concurrent ones finds the result of the first.
func (s *Store) TakeButton(ctx context.Context, id string, by channel.Peer, press int64) (text string, err error) {
	err = s.within(ctx, "taking a button", func(ctx context.Context, tx pgx.Tx) error {
		var (
			owner  channel.Peer
			setID  string
			usedBy int64
		)
		if err := onlyOne(ctx, tx, "buttons", by.Channel); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, readButtonSQL, s.clock(), clean(id)).Scan(&setID, &owner.Channel, &owner.ChatID, &owner.UserID, &text, &usedBy)
		if err != nil {
			return orNone(err, channel.ErrButtonUnknown)
		}
		if again, err := channel.CheckPress(owner, by, usedBy, press); again || err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM buttons WHERE set_id = $1 AND id <> $2`, setID, clean(id)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE buttons SET used_by = $2 WHERE id = $1`, clean(id), press)
		return err
	})
	if err != nil {
		return "", err
	}
	return text, nil
}
