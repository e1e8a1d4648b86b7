package telegram

import (
	"cmp"
	"encoding/json"
)

// progress is how much of a reply has arrived. It is stored in the row of the reply, so that a further attempt continues there, in any process.
type progress struct {
	UpTo  int    `json:"up_to,omitempty"` // offset in the document after what has arrived
	Limit int    `json:"limit,omitempty"` // units of a message; 0 means maxUnits. Smaller if Telegram found messages too long
	Plain bool   `json:"plain,omitempty"` // without tags, because even the smallest messages were too long with them
	First string `json:"first,omitempty"` // id of the first message, "" if nothing has arrived
	// Preview is the message that the first one replaces, 0 if none.
	Preview int `json:"preview,omitempty"`
	// Markup is the keyboard under the last chunk, "" if none.
	Markup string `json:"markup,omitempty"`
}

// progressOf reads what earlier attempts have recorded.
func progressOf(recorded string) (p progress, err error) {
	if recorded != "" {
		err = json.Unmarshal([]byte(recorded), &p)
	}
	return p, err
}

// shrink halves the length of the messages of a reply, and removes its tags at the smallest length; false if nothing is left to reduce.
func (p *progress) shrink() bool {
	switch limit := cmp.Or(p.Limit, maxUnits); {
	case limit > minUnits:
		p.Limit = limit / 2
	case !p.Plain:
		p.Plain = true
	default:
		return false
	}
	return true
}
