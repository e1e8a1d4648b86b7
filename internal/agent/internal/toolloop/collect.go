package toolloop

import (
	"strings"

	"laneway/internal/chat"
)

// Calls collects the calls of one answer from the pieces in which they arrive. It keeps one call and one character more than the bounds allow, so
// that an excess is recognised, and nothing beyond that.
type Calls struct {
	list []*pending
	at   map[int]int // index on the wire → place in list
}

type pending struct {
	id, name string
	args     Bounded
}

// Piece adds to the call of an index; id and name may be empty after the first piece. Another id under the same index begins another call. A name may
// come in pieces too; some endpoints instead repeat the whole name with each piece of the arguments.
func (c *Calls) Piece(index int, id, name, args string) {
	if c.at == nil {
		c.at = map[int]int{}
	}
	place, known := c.at[index]
	if !known || (id != "" && c.list[place].id != "" && c.list[place].id != id) {
		if len(c.list) > maxAsked {
			return
		}
		place = len(c.list)
		c.at[index] = place
		c.list = append(c.list, &pending{args: Bounded{limit: MaxArgs + utf8Max}})
	}
	call := c.list[place]
	if call.id == "" {
		call.id = id
	}
	if name != call.name && len(call.name) < maxName {
		call.name += name
	}
	call.args.Append(args)
}

// List returns the calls in the order in which they began.
func (c *Calls) List() []chat.ToolCall {
	var out []chat.ToolCall
	for _, call := range c.list {
		out = append(out, chat.ToolCall{ID: call.id, Name: call.name, Args: call.args.String()})
	}
	return out
}

// Bounded is a string that stops growing at its limit; the zero value holds one byte more than [MaxJournal].
type Bounded struct {
	limit int
	text  strings.Builder
}

// Append adds what fits.
func (b *Bounded) Append(text string) {
	limit := b.limit
	if limit == 0 {
		limit = MaxJournal + 1
	}
	b.text.WriteString(text[:min(len(text), max(0, limit-b.text.Len()))])
}

// String returns the collected string.
func (b *Bounded) String() string { return chat.CleanText(b.text.String()) }
