package acp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/chat"
)

func (a *scripted) say(req sdk.PromptRequest, text string) error {
	return a.update(req, sdk.UpdateAgentMessageText(text))
}

func (a *scripted) update(req sdk.PromptRequest, u sdk.SessionUpdate) error {
	return a.conn().SessionUpdate(context.Background(), sdk.SessionNotification{SessionId: req.SessionId, Update: u})
}

func (a *scripted) play(ctx context.Context, req sdk.PromptRequest) error {
	s := a.script
	if s.Noise {
		fmt.Println("a line of a library")
		fmt.Println(`{"jsonrpc":"2.0"}`)
		fmt.Println(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"of_the_future"}}}`)
		fmt.Println(`{"jsonrpc":"2.0","method":"_vendor/thing"}`)
		for _, session := range []string{"another", string(req.SessionId)} {
			fmt.Printf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"of_the_future","content":{"type":"text","text":"stray"}}}}`+"\n", session)
		}
		fmt.Println(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"another","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"stray"}}}}`)
	}
	if s.Refuses != nil {
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		return s.Refuses
	}
	for _, block := range req.Prompt {
		if _, dir, named := strings.Cut(blockText(block), "write them to the directory "); named && s.Leaves {
			if err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte("done"), 0o600); err != nil {
				return err
			}
		}
	}
	if err := a.answer(req); err != nil {
		return err
	}
	if s.Calls {
		if err := a.calls(req); err != nil {
			return err
		}
	}
	if s.Asks > 0 {
		if err := a.ask(ctx, req); err != nil {
			return err
		}
	}
	if s.Flood {
		a.in.stopped.Store(true)
		for i := 0; ; i++ {
			if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":"r%d","method":"session/request_permission","params":{"sessionId":%q,"options":[{"kind":"allow_once","name":"a","optionId":"a"}],"toolCall":{"toolCallId":"c"}}}`+"\n", i, req.SessionId); err != nil {
				return err
			}
		}
	}
	if s.LongLine {
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 1<<20)); err != nil {
				return err
			}
		}
	}
	switch {
	case s.Crash, s.Fail == chat.FailProgram:
		fmt.Fprintln(os.Stderr, "it went wrong")
		os.Exit(3)
	case s.Hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// answer sends the answer of the script.
func (a *scripted) answer(req sdk.PromptRequest) error {
	s := a.script
	pieces := s.Pieces
	if s.Repeat {
		pieces = []string{req.Prompt[len(req.Prompt)-1].Text.Text}
	}
	if s.Blocks {
		var texts []string
		for _, b := range req.Prompt {
			texts = append(texts, blockText(b))
		}
		said, err := a.remembered(req)
		if err != nil {
			return err
		}
		wd, _ := os.Getwd()
		raw, err := json.Marshal(map[string]any{"session": req.SessionId, "pid": os.Getpid(), "wd": wd, "blocks": texts, "said": said})
		if err != nil {
			return err
		}
		pieces = []string{string(raw)}
	}
	if s.Tools {
		a.mu.Lock()
		raw, err := json.Marshal(offered{a.mcp, os.Getenv("LANEWAY_MCP_URL"), os.Getenv("LANEWAY_MCP_TOKEN"), string(req.SessionId)})
		a.mu.Unlock()
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "the token is", os.Getenv("LANEWAY_MCP_TOKEN"))
		pieces = []string{string(raw)}
	}
	for range s.Burst {
		pieces = append(pieces, "x")
	}
	for _, piece := range pieces {
		if err := a.say(req, piece); err != nil {
			return err
		}
	}
	return nil
}

// blockText returns a block as a string.
func blockText(b sdk.ContentBlock) string {
	switch {
	case b.Image != nil:
		return "image " + b.Image.MimeType + " " + b.Image.Data
	case b.ResourceLink != nil:
		return "link " + b.ResourceLink.Name + " " + b.ResourceLink.Uri
	case b.Text != nil:
		return b.Text.Text
	default:
		return "?"
	}
}

// offered is what an agent with Tools answers.
type offered struct {
	Servers             []sdk.McpServer
	URL, Token, Session string
}

func (a *scripted) calls(req sdk.PromptRequest) error {
	return errors.Join(
		a.update(req, sdk.StartToolCall("c1", "Reading a\u202efile", sdk.WithStartRawInput(map[string]any{"path": "a"}))),
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateStatus(sdk.ToolCallStatusInProgress))),
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateTitle("Reading a"))),
		a.update(req, sdk.UpdateToolCall("c1", sdk.WithUpdateStatus(sdk.ToolCallStatusCompleted), sdk.WithUpdateRawOutput("content"))),
		a.update(req, sdk.UpdateToolCall("c2", sdk.WithUpdateTitle("Writing"))), // an update of a call that was not announced
		a.update(req, sdk.StartToolCall("c2", "Writing")),
		a.update(req, sdk.UpdateToolCall("c2", sdk.WithUpdateStatus(sdk.ToolCallStatusFailed))),
		a.update(req, sdk.StartToolCall("c3", "Never ending")),
		a.say(req, "Behind."),
	)
}

// ask asks for permissions and answers with the outcomes, in order.
func (a *scripted) ask(ctx context.Context, req sdk.PromptRequest) error {
	outcomes := make([]string, a.script.Asks)
	unstopped := context.WithoutCancel(ctx) // the answer may arrive after session/cancel
	var group sync.WaitGroup
	for i := range outcomes {
		group.Go(func() {
			title := fmt.Sprintf("Deleting %d\u202e", i)
			want := sdk.RequestPermissionRequest{
				SessionId: req.SessionId,
				ToolCall:  sdk.ToolCallUpdate{ToolCallId: "c", Title: &title, RawInput: map[string]any{"path": "/a"}},
				Options: []sdk.PermissionOption{
					{Kind: sdk.PermissionOptionKindAllowOnce, Name: "Allow", OptionId: "allow"},
					{Kind: sdk.PermissionOptionKindRejectOnce, Name: "Reject", OptionId: "reject"},
				},
			}
			if a.script.Wants != nil {
				want = *a.script.Wants
				want.SessionId = req.SessionId
			}
			response, err := a.conn().RequestPermission(unstopped, want)
			switch {
			case err != nil:
				outcomes[i] = err.Error()
			case response.Outcome.Selected != nil:
				outcomes[i] = string(response.Outcome.Selected.OptionId)
			default:
				outcomes[i] = "cancelled"
			}
		})
	}
	group.Wait()
	if a.script.Dir != "" {
		if err := os.WriteFile(filepath.Join(a.script.Dir, "outcomes"), []byte(strings.Join(outcomes, " ")), 0o600); err != nil {
			return err
		}
	}
	return a.say(req, strings.Join(outcomes, " "))
}
