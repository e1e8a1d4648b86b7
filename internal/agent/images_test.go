package agent_test

import (
	"errors"
	"strings"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// shelf holds files in memory.
type shelf map[string]string

func (s shelf) Read(path string, limit int64) ([]byte, error) {
	content, ok := s[path]
	if !ok || int64(len(content)) > limit {
		return nil, errors.New("no such file")
	}
	return []byte(content), nil
}

func (s shelf) Path(path string) string { return "/shelf/" + path }

func picture(path string, size int64) chat.Attachment {
	return chat.Attachment{Name: path, MIMEType: "image/png", Path: path, Size: size}
}

func TestImagesAreReadWithinBounds(t *testing.T) {
	t.Parallel()
	const png = "\x89PNG\r\n\x1a\n"
	files := shelf{"a.png": png + "a", "jpeg": "\xff\xd8\xff", "text.png": "text", "big.png": png + strings.Repeat("x", agent.MaxImage)}
	req := agent.Request{Files: files, Messages: []chat.Content{{Attachments: []chat.Attachment{
		picture("a.png", 9),
		{Name: "notes.pdf", MIMEType: "application/pdf", Path: "notes.pdf"},
		picture("text.png", 4), picture("gone.png", 4),
		picture("big.png", agent.MaxImage+8), picture("big.png", 1),
	}}, {Attachments: []chat.Attachment{picture("jpeg", 3)}}}}
	images, left := agent.Images(req)
	if len(images) != 2 || images[0].MIMEType != "image/png" || string(images[0].Data) != png+"a" || images[1].MIMEType != "image/jpeg" {
		t.Errorf("%+v", images)
	}
	for _, want := range []string{"text.png is not shown: it is no PNG", "gone.png is not shown: it cannot be read", "big.png is not shown: it is larger than 5 MB"} {
		if !strings.Contains(left, want) {
			t.Errorf("%q is missing in %q", want, left)
		}
	}
	if n := strings.Count(left, "\n") + 1; n != 4 {
		t.Errorf("%d lines: %s", n, left)
	}
	many := agent.Request{Files: files}
	for range agent.MaxImages + 1 {
		many.Messages = append(many.Messages, chat.Content{Attachments: []chat.Attachment{picture("a.png", 9)}})
	}
	if images, left := agent.Images(many); len(images) != agent.MaxImages || strings.Count(left, "at most 10") != 1 {
		t.Errorf("%d images, %q", len(images), left)
	}
	if images, left := agent.Images(agent.Request{Messages: req.Messages}); len(images) != 0 || left != "" {
		t.Errorf("without files: %d %q", len(images), left)
	}
}
