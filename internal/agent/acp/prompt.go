package acp

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
)

// blocks returns the prompt of a turn. A new agent session receives the system prompt and the history; a session that remembers the conversation receives only what
// was added since its last turn. blocks makes a new agent session when none is open, when the conversation was reset, and for the first turn with tools, because an
// agent gets its tools when the session is made. dir is the directory for the files of the turn; it may be empty.
func (p *peer) blocks(ctx context.Context, req agent.Request, access agent.ToolAccess, dir string) ([]sdk.ContentBlock, error) {
	if p.id == "" || p.memory.Forgot(req) || (access.Token != "" && !p.tools) {
		if err := p.begin(ctx, access); err != nil {
			return nil, err
		}
	}
	before, err := p.memory.Before(req, dir)
	if err != nil {
		return nil, err
	}
	blocks := make([]sdk.ContentBlock, 0, len(before)+1)
	for _, text := range before {
		blocks = append(blocks, sdk.TextBlock(text))
	}
	return append(append(blocks, p.files(req)...), sdk.TextBlock(agent.Prompt(req))), nil
}

// files returns the files that came with the messages: pictures if the agent accepts them, otherwise links to the files on this host.
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
