package acp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// blocks are the prompt of a turn. An agent that begins new is given the system prompt of the request and the history; one that remembers the conversation is given what
// others have added to it since. When the conversation was begun anew, or the agent's session has ended, the agent gets another one; so it does when the turn is the first one of it that has tools, because an agent
// learns of them with its session. dir is the directory for files of the turn, "" = none.
func (p *peer) blocks(ctx context.Context, req agent.Request, access agent.ToolAccess, dir string) ([]sdk.ContentBlock, error) {
	if p.id == "" || p.forgot(req) || (access.Token != "" && !p.tools) {
		if err := p.begin(ctx, access); err != nil {
			return nil, err
		}
	}
	var blocks []sdk.ContentBlock
	fresh := len(p.runs) == 0
	if fresh && req.SystemPrompt != "" {
		blocks = append(blocks, sdk.TextBlock(req.SystemPrompt))
	}
	intro := "The conversation before this message, as JSON:\n"
	if !fresh {
		intro = "Added to the conversation meanwhile, as JSON:\n"
	}
	if unseen := p.unseen(req.History); len(unseen) > 0 {
		raw, err := json.Marshal(unseen)
		if err != nil {
			return nil, fmt.Errorf("encoding the history: %w", err)
		}
		blocks = append(blocks, sdk.TextBlock(intro+string(raw)))
	}
	if again := agent.Repeated(req); again != "" {
		blocks = append(blocks, sdk.TextBlock(again))
	}
	if dir != "" {
		blocks = append(blocks, sdk.TextBlock("Files that the person is to get with this answer: write them to the directory "+dir))
	}
	return append(append(blocks, p.files(req)...), sdk.TextBlock(agent.Prompt(req))), nil
}

// files are the files that came with the messages: pictures where the agent takes them, otherwise links to the files on this host.
func (p *peer) files(req agent.Request) (blocks []sdk.ContentBlock) {
	if req.Files == nil {
		return nil
	}
	pictures := p.hello.AgentCapabilities.PromptCapabilities.Image
	if pictures {
		images, left := agent.Images(req)
		for _, image := range images {
			blocks = append(blocks, sdk.ImageBlock(base64.StdEncoding.EncodeToString(image.Data), image.MIMEType))
		}
		if left != "" {
			blocks = append(blocks, sdk.TextBlock(left))
		}
	}
	for _, message := range req.Messages {
		for _, file := range message.Attachments {
			if file.Path == "" || (pictures && strings.HasPrefix(file.MIMEType, "image/")) {
				continue
			}
			address := url.URL{Scheme: "file", Path: req.Files.Path(file.Path)}
			blocks = append(blocks, sdk.ResourceLinkBlock(file.Name, address.String()))
		}
	}
	return blocks
}

// remembered reports whether the history has entries of a run.
func remembered(history []chat.TranscriptEntry, runID string) bool {
	return slices.ContainsFunc(history, func(e chat.TranscriptEntry) bool { return e.RunID == runID })
}

// line is an entry of the transcript as the agent gets it. JSON keeps a text from ending its own entry.
type line struct {
	Role string `json:"role"`
	From string `json:"from,omitempty"`
	Text string `json:"text"`
}

// asks reports whether an entry is a question to the person: its last line has the commands that answer it. The question has ended with its turn, and an agent that reads it
// could take the commands for words of the person.
func asks(e chat.TranscriptEntry) bool {
	last := e.Text[strings.LastIndexByte(e.Text, '\n')+1:]
	return e.Role != chat.RoleUser && (strings.HasPrefix(last, "Write /allow ") || strings.HasPrefix(last, "Write /deny ") || strings.HasPrefix(last, "Write /answer "))
}

// unseen are the entries that the agent has not seen: those after the last one, but not of its own turns, no chat commands and no questions.
func (p *peer) unseen(history []chat.TranscriptEntry) (list []line) {
	for _, e := range history {
		if (e.Seq <= p.seen && p.seen > 0) || slices.Contains(p.runs, e.RunID) || e.Text == "" || e.Command || asks(e) {
			continue
		}
		list = append(list, line{e.Role, e.Sender.Name, e.Text})
	}
	return list
}
