package tool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"laneway/internal/chat"
)

// maxAsked bounds the arguments of a call that a person must allow, in bytes: the person has to see all of them.
const maxAsked = 1500

// Person is the person whom a turn asks before a tool acts.
type Person struct {
	// Principal may answer. The call is made for it. "" means that no person can be asked.
	Principal string `json:"principal"`
	// ID is the person in the channel of Target, see [chat.Sender]. "" means that the question is shown to every reader of Target, and Principal may
	// answer.
	ID string `json:"id,omitempty"`
	// Target is where the question is sent.
	Target chat.Target `json:"target"`
}

// Pending is a call that a person has to allow, with everything that another process needs to make it after its turn.
type Pending struct {
	Key     string          `json:"key"`
	Asked   Person          `json:"asked"`
	Session chat.SessionKey `json:"session"`
	Sender  chat.Sender     `json:"sender,omitzero"`
	Channel string          `json:"channel"`
	// Target is where the answer of the turn went.
	Target chat.Target `json:"target,omitzero"`
	Tool   string      `json:"tool"`
	Args   string      `json:"args"`
	// Why is the reason for the question, as the end of a sentence.
	Why string `json:"why,omitempty"`
	// Readers names who will see the result besides the person, if the call shows more than belongs to the conversation; otherwise "".
	Readers string `json:"readers,omitempty"`
}

// ID names the question. It follows from the key, so a repeated call asks no second question.
func (p Pending) ID() string {
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:question:"+p.Key))
	return strings.ReplaceAll(id.String(), "-", "")[:12]
}

// Words returns the call in words for a person, with the readers of its result.
func (p Pending) Words() string {
	words := chat.AllVisible(p.Tool + " " + p.Args)
	if p.Why != "" && p.Readers == "" {
		words += "\nYou are asked because the agent wants this " + p.Why + "."
	}
	if p.Readers != "" {
		words += "\nThis shows what is yours alone: " + p.Readers + " will see the result."
	}
	return words
}

// Questions sends questions to people.
type Questions interface {
	// Ask makes the question durable and sends it. Repeating the same question has no effect.
	Ask(ctx context.Context, p Pending) error
}

// ask asks the person of the turn about a call and returns a sentence for the model. p has the key and the call; why is the reason.
func (b *box) ask(ctx context.Context, turn Turn, one Tool, p Pending, why string) (string, error) {
	switch {
	case !one.Askable || turn.Asked.Principal == "":
		return "", chat.Errorf(chat.CodeForbidden, "this is not possible %s, and a person cannot allow it here", why)
	case len(p.Args) > maxAsked:
		return "", chat.Errorf(chat.CodeLimit, "this is not possible %s unless a person allows it, and the call is too long to be shown; use at most %d bytes", why, maxAsked)
	}
	if err := one.check(ctx, turn, p.Key, []byte(p.Args)); err != nil {
		return "", err
	}
	p.Why = why
	p.Asked, p.Session, p.Sender, p.Channel, p.Target = turn.Asked, turn.Session, turn.Sender, turn.Channel, turn.Target
	if err := b.questions.Ask(ctx, p); err != nil {
		return "", err
	}
	return "The person is asked whether this may be done, because it was asked for " + why +
		". It is done when they allow it within 10 minutes, and the result is sent to them. Continue without it, and do not request it again.", nil
}

// show asks the person of the turn whether the readers of the turn may see what belongs to the person alone.
func (b *box) show(ctx context.Context, turn Turn, one Tool, p Pending) (string, error) {
	where := "where " + p.Readers + " can read the answer"
	if why := reason(turn.NoActs); why != "" {
		return "", chat.Errorf(chat.CodeForbidden, "only what belongs to this conversation is shown %s; to show more, a person has to allow it: %s", where, why)
	}
	return b.ask(ctx, turn, one, p, where)
}

// everywhere is the argument with which a call requests more than belongs to the conversation of the turn.
const everywhere = `,"everywhere":{"type":"boolean","description":"Others read this conversation, so only what belongs to it is returned. ` +
	`With true the person is asked whether others may see all of theirs. Default: false."}`

// withEverywhere adds that argument to the schema of a tool.
func withEverywhere(schema string) string {
	return strings.TrimSuffix(schema, "}}") + everywhere + "}}"
}

// notHere refuses what does not belong to the conversation of a turn.
func (t Turn) notHere(what string) error {
	return chat.Errorf(chat.CodeForbidden, "%s does not belong to this conversation, and %s can read the answer; with everywhere the person is asked", what, t.Audience.Readers)
}

// check refuses arguments with which a call would fail.
func (one Tool) check(ctx context.Context, turn Turn, key string, args []byte) error {
	if one.Check != nil {
		return one.Check(ctx, turn, key, args)
	}
	var schema jsonschema.Schema
	if json.Unmarshal([]byte(one.Schema), &schema) != nil {
		return nil //nolint:nilerr // the server that has made the schema checks the arguments
	}
	fits, err := schema.Resolve(nil)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	var value any
	if json.Unmarshal(args, &value) != nil {
		return notAnObject()
	}
	if err := fits.Validate(value); err != nil {
		return chat.Errorf(chat.CodeInvalid, "the arguments do not fit the schema of %s: %s", one.Name, chat.Cut(chat.Printable(err.Error()), maxAsked))
	}
	return nil
}

// Make makes a call that a person has allowed. Its result is for the person. Repeating the call has no second effect, unless the tool belongs to
// another server ([Table.Outside]).
func (t *Table) Make(ctx context.Context, p Pending) chat.ToolResult {
	sender := p.Sender
	if p.Asked.ID != sender.ID {
		sender = chat.Sender{ID: p.Asked.ID}
	}
	turn := Turn{Owner: p.Asked.Principal, Session: p.Session, Sender: sender, Channel: p.Channel, Target: p.Target}
	if t.Outside(p.Tool) {
		turn.Servers = []string{t.deps.External.ServerOf(p.Tool)}
	}
	return t.For(turn, nil).Call(ctx, p.Key, chat.ToolCall{Name: p.Tool, Args: p.Args})
}
