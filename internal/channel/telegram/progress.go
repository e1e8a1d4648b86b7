package telegram

import (
	"cmp"
	"encoding/json"
)

// progress is how much of a reply has arrived. It is stored in the row of the reply, so that a further attempt continues there, in any process.
type progress struct {
	UpTo  int `json:"up_to,omitempty"` // offset in the document after what has arrived
	Limit int `json:"limit,omitempty"` // units of a message; 0 means maxUnits. Smaller if Telegram found messages too long
	// Halvings is how often the limits of entities were halved because Telegram found them too many.
	Halvings int `json:"halvings,omitempty"`
	// PlainTo is the offset up to which the text goes without tags, because Telegram refused it with them; Within is how much of that form has arrived, in bytes
	// after UpTo.
	PlainTo int    `json:"plain_to,omitempty"`
	Within  int    `json:"within,omitempty"`
	First   string `json:"first,omitempty"` // id of the first message, "" if nothing has arrived
	// Preview is the message that the first one replaces, 0 if none.
	Preview int `json:"preview,omitempty"`
	// Markup is the keyboard under the last chunk, "" if none. Typed is true when Telegram refused it: the choice is written as words.
	Markup string `json:"markup,omitempty"`
	Typed  bool   `json:"typed,omitempty"`
}

// progressOf reads what earlier attempts have recorded.
func progressOf(recorded string) (p progress, err error) {
	if recorded != "" {
		err = json.Unmarshal([]byte(recorded), &p)
	}
	return p, err
}

// simplify changes the form of what comes next, which Telegram refused, to a simpler one; false if there is none. part is the refused message, and whole the length
// of the document. A message that is too long is divided, at last without its tags; entities that are too many are fewer a message; whatever else Telegram does not
// accept goes without its tags, then as a new message instead of an edit, and at last without its buttons. The last one is for the caller: it changes the text.
func (p *progress) simplify(e *apiError, part chunk, whole int) bool {
	limit := cmp.Or(p.Limit, maxUnits)
	switch tagged := part.html != ""; {
	case e.tooLong() && limit > minUnits:
		p.Limit = limit / 2
	case e.tooLong() && tagged:
		p.PlainTo = whole
	case e.tooManyMarks() && tagged && p.Halvings < maxHalvings:
		p.Halvings++
	case tagged && e.ofForm():
		p.PlainTo = part.upTo
	case p.Preview != 0 && p.First == "" && e.ofForm():
		p.Preview = 0
	default:
		return false
	}
	return true
}
