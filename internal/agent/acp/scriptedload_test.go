package acp_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sdk "github.com/coder/acp-go-sdk"
)

func (a *scripted) file(id sdk.SessionId) string { return filepath.Join(a.script.Dir, string(id)) }

// remembered returns the earlier prompts of a session, and adds this one.
func (a *scripted) remembered(req sdk.PromptRequest) (said []string, err error) {
	if !a.script.Loads && !a.script.Resumes {
		return nil, nil
	}
	raw, err := os.ReadFile(a.file(req.SessionId))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text := blockText(req.Prompt[len(req.Prompt)-1])
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), os.WriteFile(a.file(req.SessionId), append(raw, text+"\n"...), 0o600)
}

func (a *scripted) LoadSession(_ context.Context, req sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	if a.script.Key != a.signed {
		return sdk.LoadSessionResponse{}, sdk.NewAuthRequired(nil)
	}
	raw, err := os.ReadFile(a.file(req.SessionId))
	if err != nil {
		return sdk.LoadSessionResponse{}, &sdk.RequestError{Code: -32602, Message: "there is no such session"}
	}
	replay := func() {
		for text := range strings.Lines(string(raw)) {
			for _, u := range []sdk.SessionUpdate{sdk.UpdateUserMessageText(text), sdk.UpdateAgentMessageText("replayed"), sdk.StartToolCall("old", "replayed")} {
				_ = a.update(sdk.PromptRequest{SessionId: req.SessionId}, u)
			}
		}
	}
	replay()
	go replay() // the response does not wait for it
	return sdk.LoadSessionResponse{}, nil
}

func (a *scripted) ResumeSession(_ context.Context, req sdk.ResumeSessionRequest) (sdk.ResumeSessionResponse, error) {
	if a.script.Loads { // it announces the capability but does not find its sessions
		return sdk.ResumeSessionResponse{}, &sdk.RequestError{Code: -32603, Message: "Internal error"}
	}
	if _, err := os.Stat(a.file(req.SessionId)); err != nil {
		return sdk.ResumeSessionResponse{}, &sdk.RequestError{Code: -32602, Message: "there is no such session"}
	}
	return sdk.ResumeSessionResponse{}, nil
}
