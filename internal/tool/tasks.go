package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Tasks starts sub-turns for one turn, and waits for them.
type Tasks interface {
	// Start accepts a sub-turn. It does nothing if the id was accepted before.
	Start(ctx context.Context, t NewTask) error
	// Wait returns when a sub-turn has ended, or with the cause of ctx. The turn holds no slot
	// meanwhile.
	Wait(ctx context.Context, id string) (chat.RunEnd, error)
	// Colleagues returns the other agents.
	Colleagues() []string
}

// NewTask is a sub-turn.
type NewTask struct {
	// ID is the id of its message.
	ID string
	// Agent that works on it; "" means the agent of the turn. Text is its prompt.
	Agent, Text string
	// Lane in which it runs.
	Lane string
	// Announce means that the turn does not wait, and the end is announced in its session.
	Announce bool
}

// The lanes of sub-turns.
const (
	laneSubagent = "subagent"
	laneTeam     = "team"
)

// maxAnswer bounds the part of a sub-turn's answer that its parent receives, in bytes.
const maxAnswer = 48 << 10

func (t *Table) spawn() Tool {
	return Tool{
		Name: "spawn", Scope: chat.ScopeWrite, Idempotent: true, Waits: true,
		Description: "Starts a separate turn of yourself, with an empty conversation of its own, for a piece of work that can be done alone. " +
			"Without wait you go on at once, and its answer comes into this conversation later; with wait its answer is the result.",
		Schema: `{"type":"object","additionalProperties":false,"required":["task"],"properties":{
			"task":{"type":"string","description":"All that is needed to do the work; the turn reads nothing else."},
			"wait":{"type":"boolean","description":"Wait for the answer. Default: false."}}}`,
		Offer: func(turn Turn, _ *Tool) bool { return turn.Tasks != nil },
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[struct {
				Task string `json:"task"`
				Wait bool   `json:"wait"`
			}](args)
			if err != nil {
				return "", err
			}
			task := NewTask{ID: idOf(key), Text: a.Task, Lane: laneSubagent, Announce: !a.Wait}
			if err := startTask(ctx, turn, task); err != nil {
				return "", err
			}
			if a.Wait {
				return waitFor(ctx, turn, task)
			}
			return "The task " + task.ID + " works on it; its answer comes into this conversation.", nil
		},
	}
}

func (t *Table) delegate() Tool {
	return Tool{
		Name: "delegate", Scope: chat.ScopeWrite, Idempotent: true, Waits: true,
		Description: "Asks another agent to do something and waits for its answer. It reads nothing but the task.",
		Offer: func(turn Turn, one *Tool) bool {
			if turn.Tasks == nil || len(turn.Tasks.Colleagues()) == 0 {
				return false
			}
			one.Schema = `{"type":"object","additionalProperties":false,"required":["agent","task"],"properties":{
			"agent":{"type":"string","enum":["` + strings.Join(turn.Tasks.Colleagues(), `","`) + `"]},
			"task":{"type":"string","description":"All that is needed to do the work."}}}`
			return true
		},
		Schema: `{"type":"object","additionalProperties":false,"required":["agent","task"],"properties":{"agent":{"type":"string"},"task":{"type":"string"}}}`,
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[struct {
				Agent string `json:"agent"`
				Task  string `json:"task"`
			}](args)
			if err != nil {
				return "", err
			}
			if a.Agent == "" {
				return "", chat.Errorf(chat.CodeInvalid, "the argument agent is missing; there are %s", strings.Join(turn.Tasks.Colleagues(), ", "))
			}
			task := NewTask{ID: idOf(key), Agent: a.Agent, Text: a.Task, Lane: laneTeam}
			if err := startTask(ctx, turn, task); err != nil {
				return "", err
			}
			return waitFor(ctx, turn, task)
		},
	}
}

func startTask(ctx context.Context, turn Turn, task NewTask) error {
	if err := chat.CheckText("task", task.Text, chat.MaxText); err != nil {
		return err
	}
	return turn.Tasks.Start(ctx, task)
}

// waitFor waits for a sub-turn and returns its answer, or an error with the reason why it has none.
// A sub-turn works for the same person, so its answer is external text only if it has read some.
func waitFor(ctx context.Context, turn Turn, task NewTask) (string, error) {
	end, err := turn.Tasks.Wait(ctx, task.ID)
	if end.Foreign {
		turn.markForeign()
	}
	switch {
	case err != nil:
		return "", err
	case end.Outcome != chat.OutcomeAnswered:
		return "", chat.Errorf(chat.CodeConflict, "the task ended without an answer (%s): %s", end.Outcome, end.Message)
	}
	return Answer(end.Text), nil
}

// Answer returns the answer of a sub-turn as its parent receives it.
func Answer(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "The task has ended and has no answer."
	case len(text) > maxAnswer:
		return chat.Cut(text, maxAnswer) + fmt.Sprintf("\n[the answer has %d bytes; this is its begin]", len(text))
	default:
		return text
	}
}

// maxAsked bounds the arguments of a call that a person must allow, in bytes: the person has to see
// all of them.
const maxAsked = 1500

// Person is the person whom a turn asks before a tool acts.
type Person struct {
	// Principal may answer. The call is made for it. "" means that no person can be asked.
	Principal string `json:"principal"`
	// ID is the person in the channel of Target, see [chat.Sender]. "" means that the question is
	// shown to every reader of Target, and Principal may answer.
	ID string `json:"id,omitempty"`
	// Target is where the question is sent.
	Target chat.Target `json:"target"`
}

// Pending is a call that a person has to allow, with everything that another process needs to make
// it after its turn.
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
	// Readers names who will see the result besides the person, if the call shows more than belongs
	// to the conversation; otherwise "".
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

// ask asks the person of the turn about a call and returns a sentence for the model. p has the key
// and the call; why is the reason.
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

// show asks the person of the turn whether the readers of the turn may see what belongs to the
// person alone.
func (b *box) show(ctx context.Context, turn Turn, one Tool, p Pending) (string, error) {
	where := "where " + p.Readers + " can read the answer"
	if why := reason(turn.NoActs); why != "" {
		return "", chat.Errorf(chat.CodeForbidden, "only what belongs to this conversation is shown %s; to show more, a person has to allow it: %s", where, why)
	}
	return b.ask(ctx, turn, one, p, where)
}

// everywhere is the argument with which a call requests more than belongs to the conversation of
// the turn.
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

// Make makes a call that a person has allowed. Its result is for the person. Repeating the call has
// no second effect, unless the tool belongs to another server ([Table.Outside]).
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

// Files are the files of one turn. It is safe for concurrent use.
type Files interface {
	// TakeFile takes over a file by its path below the directory of the turn; MakeFile makes a file
	// from text. Both keep the bounds of the files of an answer. name is what the person sees; ""
	// means that of the path. A refusal is a chat.Error.
	TakeFile(path, name string) (chat.Attachment, error)
	MakeFile(name, text string) (chat.Attachment, error)
	// DropFile deletes a file that was taken over and is not sent.
	DropFile(f chat.Attachment)
}

func (t *Table) sendFile() Tool {
	return Tool{
		Name: "send_file", Scope: chat.ScopeWrite, Idempotent: true, Additive: true, InOrder: true, Acts: always,
		Description: "Sends a file to the person at once, in this chat: one from the directory for files of this turn (path), or one with text that you write (name and text).",
		Schema: `{"type":"object","additionalProperties":false,"properties":{
			"path":{"type":"string","description":"Path of the file in the directory for files of this turn."},
			"name":{"type":"string","description":"Name that the person sees, such as report.csv. Default: that of the path."},
			"text":{"type":"string","description":"Content of a new file, instead of path."}}}`,
		Offer: func(turn Turn, _ *Tool) bool { return turn.Files != nil },
		Run:   t.runSendFile,
	}
}

// fileGone is added to the error of a repeated call, because the first call may have taken over the
// file.
const fileGone = "; if this call is made again after an interruption, the file may have been sent before"

func (t *Table) runSendFile(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
	a, err := read[struct {
		Path string `json:"path"`
		Name string `json:"name"`
		Text string `json:"text"`
	}](args)
	switch {
	case err != nil:
		return "", err
	case (a.Path == "") == (a.Text == ""):
		return "", chat.Errorf(chat.CodeInvalid, "give either path or text")
	case a.Text != "" && a.Name == "":
		return "", chat.Errorf(chat.CodeInvalid, "a file of a text needs a name")
	}
	var file chat.Attachment
	if a.Path != "" {
		file, err = turn.Files.TakeFile(a.Path, a.Name)
	} else {
		file, err = turn.Files.MakeFile(a.Name, a.Text)
	}
	if known, ok := errors.AsType[*chat.Error](err); ok && known.Code == chat.CodeNotFound {
		return "", chat.Errorf(chat.CodeNotFound, "%s", known.Message+fileGone)
	}
	if err != nil {
		return "", err
	}
	err = t.deps.Sessions.Send(ctx, store.Outgoing{
		RunID: idOf(key), N: 1, Session: turn.Session, Principal: turn.Owner, Target: turn.Target, Kind: store.KindReply, Text: file.Line(), File: &file, Count: 1,
		Origin: &chat.Origin{Kind: chat.OriginMessage, By: turn.Session.String()},
	})
	if err != nil {
		turn.Files.DropFile(file)
		return "", err
	}
	return "The file " + file.Name + " is on its way.", nil
}
