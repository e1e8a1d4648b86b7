package toolloop

import (
	"errors"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
)

// Images are the pictures of the new input, read once for a turn.
type Images struct {
	List []agent.Image
	left string // lines about pictures that are not shown
}

// ImagesOf reads the pictures of a request.
func ImagesOf(req agent.Request) Images {
	var i Images
	i.List, i.left = agent.Images(req)
	return i
}

// Tokens estimates the cost of the pictures.
func (i *Images) Tokens() int { return len(i.List) * agent.ImageTokens }

// Text returns the text of the new input with the lines about pictures that are not shown.
func (i *Images) Text(input string) string {
	if i.left == "" {
		return input
	}
	return input + "\n" + i.left
}

// Refused reports whether an endpoint has refused a request because of its pictures. If so, it removes them, so that the same request can be sent
// without pictures. The next turn sends its pictures again: one picture may be broken and the next one not.
func (i *Images) Refused(err error) bool {
	var refusal *modelhttp.StatusError
	if len(i.List) == 0 || !errors.As(err, &refusal) {
		return false
	}
	words := strings.ToLower(refusal.Message)
	for _, sign := range []string{"image", "vision", "multimodal", "multi-modal", "content must be a string", "content.str"} {
		if strings.Contains(words, sign) {
			i.List = nil
			i.left = strings.TrimPrefix(i.left+"\n[the model cannot be shown pictures]", "\n")
			return true
		}
	}
	return false
}
