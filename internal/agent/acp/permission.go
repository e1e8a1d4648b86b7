package acp

import (
	"context"
	"slices"

	sdk "github.com/coder/acp-go-sdk"
)

// maxQuestions is how many questions of a turn may be open at the same time; further ones are refused.
const maxQuestions = 4

// client is the side of the protocol that the agent calls. Only permissions are offered.
type client struct{ peer *peer }

var _ sdk.Client = client{}

// RequestPermission implements [sdk.Client].
func (c client) RequestPermission(_ context.Context, req sdk.RequestPermissionRequest) (sdk.RequestPermissionResponse, error) {
	t := c.peer.current()
	if t == nil {
		return cancelled(), nil
	}
	t.update(sdk.SessionUpdate{ToolCallUpdate: &sdk.SessionToolCallUpdate{ToolCallId: req.ToolCall.ToolCallId, Title: req.ToolCall.Title, RawInput: req.ToolCall.RawInput}})
	chosen, asked := t.ask(req, c.peer.dir)
	if t.ctx.Err() != nil {
		return cancelled(), nil //nolint:nilerr // as the protocol demands after session/cancel
	}
	if !asked {
		return refusal(req.Options), nil
	}
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(chosen)}, nil
}

// ask asks the person of the turn. ok is false without an answer.
func (t *turn) ask(req sdk.RequestPermissionRequest, dir string) (chosen sdk.PermissionOptionId, ok bool) {
	if t.asker == nil || len(req.Options) > maxOptions {
		return "", false
	}
	q, answers := question(req, dir)
	if len(answers) == 0 {
		return "", false
	}
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	default:
		return "", false
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.questionTime)
	defer cancel()
	n, err := t.asker.Ask(ctx, q)
	if err != nil || n < 0 || n >= len(answers) {
		return "", false
	}
	return answers[n], true
}

func cancelled() sdk.RequestPermissionResponse {
	return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeCancelled()}
}

// refusal returns the refusing option: reject once, else reject always, else cancelled.
func refusal(options []sdk.PermissionOption) sdk.RequestPermissionResponse {
	for _, kind := range []sdk.PermissionOptionKind{sdk.PermissionOptionKindRejectOnce, sdk.PermissionOptionKindRejectAlways} {
		if i := slices.IndexFunc(options, func(o sdk.PermissionOption) bool { return o.Kind == kind }); i >= 0 {
			return sdk.RequestPermissionResponse{Outcome: sdk.NewRequestPermissionOutcomeSelected(options[i].OptionId)}
		}
	}
	return cancelled()
}

// The rest of [sdk.Client] is not offered; calls of an agent are refused. SessionUpdate is never called, see [link].

// SessionUpdate implements [sdk.Client].
func (client) SessionUpdate(context.Context, sdk.SessionNotification) error { return nil }

// ReadTextFile implements [sdk.Client].
func (client) ReadTextFile(context.Context, sdk.ReadTextFileRequest) (sdk.ReadTextFileResponse, error) {
	return sdk.ReadTextFileResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodFsReadTextFile)
}

// WriteTextFile implements [sdk.Client].
func (client) WriteTextFile(context.Context, sdk.WriteTextFileRequest) (sdk.WriteTextFileResponse, error) {
	return sdk.WriteTextFileResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodFsWriteTextFile)
}

// CreateTerminal implements [sdk.Client].
func (client) CreateTerminal(context.Context, sdk.CreateTerminalRequest) (sdk.CreateTerminalResponse, error) {
	return sdk.CreateTerminalResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalCreate)
}

// KillTerminal implements [sdk.Client].
func (client) KillTerminal(context.Context, sdk.KillTerminalRequest) (sdk.KillTerminalResponse, error) {
	return sdk.KillTerminalResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalKill)
}

// TerminalOutput implements [sdk.Client].
func (client) TerminalOutput(context.Context, sdk.TerminalOutputRequest) (sdk.TerminalOutputResponse, error) {
	return sdk.TerminalOutputResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalOutput)
}

// ReleaseTerminal implements [sdk.Client].
func (client) ReleaseTerminal(context.Context, sdk.ReleaseTerminalRequest) (sdk.ReleaseTerminalResponse, error) {
	return sdk.ReleaseTerminalResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalRelease)
}

// WaitForTerminalExit implements [sdk.Client].
func (client) WaitForTerminalExit(context.Context, sdk.WaitForTerminalExitRequest) (sdk.WaitForTerminalExitResponse, error) {
	return sdk.WaitForTerminalExitResponse{}, sdk.NewMethodNotFound(sdk.ClientMethodTerminalWaitForExit)
}
