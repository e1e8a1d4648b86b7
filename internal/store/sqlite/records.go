package sqlite

import (
	"context"

	"laneway/internal/channel"
)

// GroupActivation is what was chosen for a group.
func (s *Store) GroupActivation(ctx context.Context, of string, chatID int64) (activation string, err error) {
	err = s.view(ctx, "read what was chosen for a group", func(ctx context.Context, q querier) error {
		err := q.one(ctx, `SELECT activation FROM channel_groups WHERE channel = ? AND chat_id = ?`, of, chatID).Scan(&activation)
		if none(err) {
			return nil
		}
		return err
	})
	return activation, err
}

// SetGroupActivation keeps what was chosen for a group.
func (s *Store) SetGroupActivation(ctx context.Context, of string, chatID int64, activation string) error {
	return s.write.do(ctx, ordinary("keep what was chosen for a group"), func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO channel_groups (channel, chat_id, activation) VALUES (?, ?, ?)
			ON CONFLICT (channel, chat_id) DO UPDATE SET activation = excluded.activation`, of, chatID, activation)
		return err
	})
}

// GroupBefore is the number that a group had before.
func (s *Store) GroupBefore(ctx context.Context, of string, chatID int64) (from int64, err error) {
	err = s.view(ctx, "read what a group was", func(ctx context.Context, q querier) error {
		err := q.one(ctx, `SELECT moved_from FROM channel_groups WHERE channel = ? AND chat_id = ?`, of, chatID).Scan(&from)
		if none(err) {
			return nil
		}
		return err
	})
	return from, err
}

// MoveGroup keeps the new number of a group; what was chosen for the old one goes along, unless something was chosen for the new one.
func (s *Store) MoveGroup(ctx context.Context, of string, from, to int64) error {
	return s.write.do(ctx, ordinary("keep the new number of a group"), func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `INSERT INTO channel_groups (channel, chat_id, activation, moved_from)
			VALUES (?1, ?2, coalesce((SELECT activation FROM channel_groups WHERE channel = ?1 AND chat_id = ?3), ''), ?3)
			ON CONFLICT (channel, chat_id) DO UPDATE SET moved_from = excluded.moved_from,
				activation = iif(channel_groups.activation = '', excluded.activation, channel_groups.activation)`, of, to, from)
		return err
	})
}

// PutButtons keeps the buttons of one message.
func (s *Store) PutButtons(ctx context.Context, set channel.ButtonSet) error {
	return s.write.do(ctx, ordinary("keep buttons"), func(ctx context.Context, t *tx) error {
		if _, err := t.exec(ctx, `DELETE FROM buttons WHERE expires_at <= ?`, t.now); err != nil {
			return err
		}
		var open int
		if err := t.one(ctx, `SELECT count(*) FROM buttons WHERE channel = ?`, set.Channel).Scan(&open); err != nil {
			return err
		}
		if open+len(set.Texts) > channel.MaxButtons {
			return channel.ErrButtonsFull
		}
		setID := newID()
		for id, text := range set.Texts {
			_, err := t.exec(ctx, `INSERT INTO buttons (id, set_id, channel, chat_id, user_id, text, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				id, setID, set.Channel, set.ChatID, set.UserID, text, t.now+channel.ButtonLife.Milliseconds())
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// TakeButton reads a button, marks it as used and removes the others of its set.
func (s *Store) TakeButton(ctx context.Context, id string, by channel.Peer, press int64) (string, error) {
	return result(ctx, s.write, ordinary("take a button"), func(ctx context.Context, t *tx) (text string, err error) {
		var (
			owner  channel.Peer
			setID  string
			usedBy int64
		)
		err = t.one(ctx, `SELECT set_id, channel, chat_id, user_id, text, coalesce(used_by, 0) FROM buttons WHERE id = ? AND expires_at > ?`, id, t.now).
			Scan(&setID, &owner.Channel, &owner.ChatID, &owner.UserID, &text, &usedBy)
		if none(err) {
			return "", channel.ErrButtonUnknown
		}
		if err != nil {
			return "", err
		}
		if again, err := channel.CheckPress(owner, by, usedBy, press); again || err != nil {
			return text, err
		}
		if _, err := t.exec(ctx, `DELETE FROM buttons WHERE set_id = ? AND id <> ?`, setID, id); err != nil {
			return "", err
		}
		_, err = t.exec(ctx, `UPDATE buttons SET used_by = ? WHERE id = ?`, press, id)
		return text, err
	})
}
