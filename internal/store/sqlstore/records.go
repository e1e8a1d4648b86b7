package sqlstore

import (
	"context"

	"laneway/internal/channel"
)

var _ channel.Records = Access{}

// GroupActivation is the activation chosen for a group.
func (s Access) GroupActivation(ctx context.Context, of string, chatID int64) (string, error) {
	return value[string](ctx, s.db, query{
		"read what was chosen for a group", `SELECT activation FROM channel_groups WHERE channel = $1 AND chat_id = $2`, []any{of, chatID},
	})
}

// GroupBefore is the previous number of a group.
func (s Access) GroupBefore(ctx context.Context, of string, chatID int64) (int64, error) {
	return value[int64](ctx, s.db, query{"read what a group was", `SELECT moved_from FROM channel_groups WHERE channel = $1 AND chat_id = $2`, []any{of, chatID}})
}

// SetGroupActivation stores the activation chosen for a group.
func (s Access) SetGroupActivation(ctx context.Context, of string, chatID int64, activation string) error {
	return s.db.Update(ctx, "keep what was chosen for a group", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO channel_groups (channel, chat_id, activation) VALUES ($1, $2, $3)
			ON CONFLICT (channel, chat_id) DO UPDATE SET activation = excluded.activation`, of, chatID, activation)
		return err
	})
}

// MoveGroup stores the new number of a group. The settings of the old number also apply to the new one, unless it has its own.
func (s Access) MoveGroup(ctx context.Context, of string, from, to int64) error {
	return s.db.Update(ctx, "keep the new number of a group", func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO channel_groups (channel, chat_id, activation, moved_from)
			VALUES ($1, $2, COALESCE((SELECT activation FROM channel_groups WHERE channel = $1 AND chat_id = $3), ''), $3)
			ON CONFLICT (channel, chat_id) DO UPDATE SET moved_from = excluded.moved_from,
				activation = CASE WHEN channel_groups.activation = '' THEN excluded.activation ELSE channel_groups.activation END`, of, to, from)
		return err
	})
}

const putButtonsSQL = `{set id text, body text}
	INSERT INTO buttons (id, set_id, channel, chat_id, user_id, text, expires_at)
	SELECT v.id, $1, $2, CAST($3 AS bigint), CAST($4 AS bigint), v.body, {now} + $5 {from} WHERE true`

// PutButtons stores the buttons of one message.
func (s Access) PutButtons(ctx context.Context, set channel.ButtonSet) error {
	setID, err := newID()
	if err != nil {
		return err
	}
	rows := make(Set, 0, len(set.Texts))
	for id, text := range set.Texts {
		rows = append(rows, []any{id, text})
	}
	return s.db.Update(ctx, "keep buttons", func(ctx context.Context, tx Tx) error {
		if err := lockName(ctx, tx, "buttons", set.Channel); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM buttons WHERE expires_at <= {now}`); err != nil {
			return err
		}
		var open int
		if _, err := one(ctx, tx, `SELECT count(*) FROM buttons WHERE channel = $1`, into(&open), set.Channel); err != nil {
			return err
		}
		if open+len(set.Texts) > channel.MaxButtons {
			return channel.ErrButtonsFull
		}
		_, err := tx.Exec(ctx, putButtonsSQL, setID, set.Channel, set.ChatID, set.UserID, channel.ButtonLife.Milliseconds(), rows)
		return err
	})
}

// TakeButton reads a button, marks it as used and removes the other buttons of its set. Presses of one account's buttons are serialized, so that the second of
// two concurrent ones finds the result of the first.
func (s Access) TakeButton(ctx context.Context, id string, by channel.Peer, press int64) (string, error) {
	return result(ctx, s.db.Update, "take a button", func(ctx context.Context, tx Tx) (text string, err error) {
		var (
			owner  channel.Peer
			setID  string
			usedBy int64
		)
		if err := lockName(ctx, tx, "buttons", by.Channel); err != nil {
			return "", err
		}
		found, err := one(ctx, tx, `SELECT set_id, channel, chat_id, user_id, text, COALESCE(used_by, 0) FROM buttons WHERE id = $1 AND expires_at > {now}`,
			into(&setID, &owner.Channel, &owner.ChatID, &owner.UserID, &text, &usedBy), id)
		switch {
		case err != nil:
			return "", err
		case !found:
			return "", channel.ErrButtonUnknown
		}
		if again, err := channel.CheckPress(owner, by, usedBy, press); again || err != nil {
			return text, err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM buttons WHERE set_id = $1 AND id <> $2`, setID, id); err != nil {
			return "", err
		}
		_, err = tx.Exec(ctx, `UPDATE buttons SET used_by = $2 WHERE id = $1`, id, press)
		return text, err
	})
}
