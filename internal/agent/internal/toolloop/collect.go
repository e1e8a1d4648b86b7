package toolloop

import (
	"encoding/json"
	"slices"
	"strings"

	"laneway/internal/chat"
)

// Calls collects the calls of one answer from the pieces in which they arrive. It keeps one call and one character more than the bounds allow, so
// that an excess is recognised, and nothing beyond that.
type Calls struct {
	list    []*pending
	at      map[int]int // index on the wire → place in list
	offered map[string]bool
}

type pending struct {
	id, name string
	args     Bounded
	members  map[string]any
}

// complete reports whether the arguments are a JSON object already.
func (p *pending) complete() bool { return isObject(p.args.text.String()) }

// Piece is a part of a call as it arrived.
type Piece struct {
	// Index is the number of the call on the wire, -1 if there is none.
	Index int
	// ID, Name and Args may be empty after the first piece.
	ID, Name, Args string
	// Members are those that the dialect does not know.
	Members map[string]any
}

// Offer states that a tool is offered: its name in a piece is a whole name.
func (c *Calls) Offer(name string) {
	if c.offered == nil {
		c.offered = map[string]bool{}
	}
	c.offered[name] = true
}

// Add adds the pieces of one event; merge joins the members of a call with those of its next piece. Calls of one event are separate. A piece continues
// the call of its index or id, or else the call at its place among the last ones, unless it begins another call: another id or another whole name, or a
// name and whole arguments after complete ones. An id may be missing or repeated. A name may come in pieces too; some endpoints instead repeat the whole
// name with each piece of the arguments.
func (c *Calls) Add(pieces []Piece, merge func(before, piece map[string]any) map[string]any) {
	if c.at == nil {
		c.at = map[int]int{}
	}
	taken := map[int]bool{} // places of this event
	first := max(0, len(c.list)-len(pieces))
	for i, p := range pieces {
		place := c.place(p, first+i)
		if place < 0 || taken[place] || c.begins(c.list[place], p) {
			if place >= 0 && !taken[place] && repeats(c.list[place], p) {
				taken[place] = true
				continue
			}
			if len(c.list) > maxAsked || (p.ID == "" && p.Name == "" && blank(p.Args)) {
				continue
			}
			place = len(c.list)
			c.list = append(c.list, &pending{args: Bounded{limit: MaxArgs + utf8Max}})
		}
		if p.Index >= 0 {
			c.at[p.Index] = place
		}
		taken[place] = true
		call := c.list[place]
		if call.id == "" {
			call.id = p.ID
		}
		if p.Name != call.name && len(call.name) < maxName {
			call.name += p.Name
		}
		call.args.Append(p.Args)
		if len(p.Members) > 0 {
			call.members = merge(call.members, p.Members)
		}
	}
}

// place returns the call that a piece may continue, -1 if there is none.
func (c *Calls) place(p Piece, among int) int {
	if p.Index >= 0 {
		if place, known := c.at[p.Index]; known {
			return place
		}
		return -1
	}
	for i := len(c.list) - 1; i >= 0 && p.ID != ""; i-- {
		if c.list[i].id == p.ID {
			return i
		}
	}
	if among < len(c.list) && len(c.list) > 0 {
		return among
	}
	return len(c.list) - 1
}

// begins reports whether a piece begins another call than the one at its place.
func (c *Calls) begins(call *pending, p Piece) bool {
	switch {
	case p.ID != "" && call.id != "" && p.ID != call.id:
		return true
	case p.Name == "":
		return false
	case call.complete():
		return isObject(p.Args) || p.Name != call.name
	case p.Name != call.name && (c.offered[call.name] && c.offered[p.Name] || call.args.text.Len() > 0 || p.Index < 0 && call.name != ""):
		return true
	default:
		return false
	}
}

// repeats reports whether a piece is the whole call once more, under its own id.
func repeats(call *pending, p Piece) bool {
	return p.Index >= 0 && p.ID != "" && p.ID == call.id && p.Name == call.name && p.Args == call.args.text.String()
}

func isObject(args string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal([]byte(args), &members) == nil && members != nil
}

// blank reports arguments that are absent: an empty string, or null.
func blank(args string) bool {
	args = strings.TrimSpace(args)
	return args == "" || args == "null"
}

// Len returns the number of calls.
func (c *Calls) Len() int { return len(c.named()) }

// DropIncomplete removes the last call if its arguments are not complete: the answer was cut off within it.
func (c *Calls) DropIncomplete() {
	if n := len(c.list); n > 0 && !c.list[n-1].complete() {
		c.list = c.list[:n-1]
	}
}

// named returns the calls that name a tool; what does not is no call.
func (c *Calls) named() []*pending {
	return slices.DeleteFunc(slices.Clone(c.list), func(p *pending) bool { return strings.TrimSpace(p.name) == "" })
}

// List returns the calls in the order in which they began.
func (c *Calls) List() []chat.ToolCall {
	var out []chat.ToolCall
	for _, call := range c.named() {
		args := call.args.String()
		var inner string
		if blank(args) {
			args = ""
		} else if json.Unmarshal([]byte(args), &inner) == nil && (isObject(inner) || blank(inner)) {
			args = inner // a string within the string
		}
		out = append(out, chat.ToolCall{ID: call.id, Name: call.name, Args: args})
	}
	return out
}

// Members returns the members of each call in List.
func (c *Calls) Members() []map[string]any {
	var out []map[string]any
	for _, call := range c.named() {
		out = append(out, call.members)
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
