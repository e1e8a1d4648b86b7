package tool

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Files are the files of one turn. It is safe for concurrent use.
type Files interface {
	// TakeFile takes over a file by its path below the directory of the turn; MakeFile makes a file from text. Both keep the bounds of the files of
	// an answer. name is what the person sees; "" means that of the path. A refusal is a chat.Error.
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

// fileGone is added to the error of a repeated call, because the first call may have taken over the file.
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
