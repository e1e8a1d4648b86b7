package openai

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
)

// filePart are the members of a part that is a file.
type filePart struct {
	FileID   string `json:"file_id"`
	FileData string `json:"file_data"`
	Filename string `json:"filename"`
}

// inputFile is a file of a message: one that was uploaded before, by its id, or one whose content is in the request.
type inputFile struct {
	id         string
	name, kind string
	content    []byte
}

// inputFile returns the file of a part of type image_url, input_image, file or input_file.
func (p *contentPart) inputFile() (inputFile, error) {
	about := p.filePart
	if p.File != nil {
		about = *p.File
	}
	url := about.FileData
	if len(p.ImageURL) > 0 && string(p.ImageURL) != "null" {
		var object struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(p.ImageURL, &url) != nil && json.Unmarshal(p.ImageURL, &object) != nil {
			return inputFile{}, errors.New("image_url must be a URL, or an object with a url")
		}
		if object.URL != "" {
			url = object.URL
		}
	}
	switch {
	case about.FileID != "" && url != "":
		return inputFile{}, errors.New("a part has a file_id or the content of a file, not both")
	case about.FileID != "":
		return inputFile{id: about.FileID}, nil
	case url == "":
		return inputFile{}, fmt.Errorf("a part of type %s needs a file_id or the content of a file", quoted(p.Type))
	}
	return decodeFile(about.Filename, url)
}

// decodeFile decodes the content of a file in a request: a data URL, or plain base64.
func decodeFile(name, url string) (inputFile, error) {
	data, kind := url, ""
	if strings.Contains(url, ":") {
		head, rest, ok := strings.Cut(url, ",")
		given, isData := strings.CutPrefix(head, "data:")
		given, coded := strings.CutSuffix(given, ";base64")
		if !ok || !isData || !coded {
			return inputFile{}, errors.New("the content of a file must be a data: URL with base64, or name a file by file_id (POST /v1/files); the gateway fetches nothing from other addresses")
		}
		data, kind = rest, given
	}
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(content) == 0 {
		return inputFile{}, errors.New("the content of a file is not base64, or empty")
	}
	return inputFile{name: nameOf(name, kind), kind: kind, content: content}, nil
}

// nameOf returns a name for a file without a name.
func nameOf(name, kind string) string {
	if name != "" {
		return name
	}
	if ending, ok := strings.CutPrefix(kind, "image/"); ok {
		return "image." + ending
	}
	return "file"
}

// attach stores the files of a request. On an error, the files that it has stored are removed; see [call.discard].
func (h *Handler) attach(ctx context.Context, c *call) (err error) {
	if len(c.prompt.files) > chat.MaxAttachments {
		return fault.Invalid(fmt.Sprintf("a request has at most %d images and files", chat.MaxAttachments))
	}
	if len(c.prompt.files) > 0 && h.files == nil {
		return fault.Invalid("this gateway keeps no files")
	}
	defer func() {
		if err != nil {
			h.discard(ctx, c)
		}
	}()
	for _, f := range c.prompt.files {
		if f.id != "" {
			used, err := h.files.UseFile(c.cred.Name, c.cred.Own(), f.id)
			if errors.Is(err, chat.ErrNotFound) {
				err = chat.Errorf(chat.CodeNotFound, "the file %s does not exist", quoted(f.id)).With("param", "file_id")
			}
			if err != nil {
				return err
			}
			c.attachments = append(c.attachments, used)
			continue
		}
		up, err := h.files.SaveFile(c.cred.Name, chat.Upload{Attachment: chat.Attachment{Name: f.name, MIMEType: f.kind}, Purpose: "user_data"}, bytes.NewReader(f.content))
		if err != nil {
			return err //nolint:wrapcheck // for the client as it is
		}
		c.saved, c.attachments = append(c.saved, up.Attachment), append(c.attachments, up.Attachment)
	}
	return nil
}

// discard removes the files that a request has stored and that no message names.
func (h *Handler) discard(ctx context.Context, c *call) {
	for _, f := range c.saved {
		if err := h.files.DropFile(f); err != nil {
			h.log.WarnContext(ctx, "a file that no message names was not removed; retention removes it", slog.Any("err", err))
		}
	}
	c.saved, c.attachments = nil, nil
}
