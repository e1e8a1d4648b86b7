package agent

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"laneway/internal/chat"
)

// Bounds of the pictures of one turn.
const (
	// MaxImages is the largest number of pictures sent to a model.
	MaxImages = 10
	// MaxImage is the largest size of one picture in bytes, MaxImageBytes that of all pictures together.
	MaxImage      = 5 << 20
	MaxImageBytes = 15 << 20
	// ImageTokens is the estimated cost of a picture, which errs high.
	ImageTokens = 1_600
)

// Image is a picture for a model.
type Image struct {
	// MIMEType is image/png, image/jpeg, image/gif or image/webp, determined from the content.
	MIMEType string
	Data     []byte
}

// Images reads the pictures that came with the messages of a request. A picture that exceeds a bound or cannot be read is named in left: one line for
// each, in brackets, for the text next to the pictures. Other files are in [Prompt] only.
func Images(req Request) (images []Image, left string) {
	var lines []string
	total := 0
	for _, message := range req.Messages {
		for _, file := range message.Attachments {
			if !strings.HasPrefix(file.MIMEType, "image/") || req.Files == nil {
				continue
			}
			image, why := readImage(req.Files, file)
			switch {
			case why != "":
			case len(images) == MaxImages:
				why = fmt.Sprintf("at most %d pictures are shown", MaxImages)
			case total+len(image.Data) > MaxImageBytes:
				why = fmt.Sprintf("the pictures have more than %d MB together", MaxImageBytes>>20)
			}
			if why != "" {
				lines = append(lines, fmt.Sprintf("[the picture %s is not shown: %s]", chat.Printable(file.Name), why))
				continue
			}
			images, total = append(images, image), total+len(image.Data)
		}
	}
	return images, strings.Join(lines, "\n")
}

// readImage reads one picture; why is the reason for the model when it cannot be shown.
func readImage(files Files, file chat.Attachment) (image Image, why string) {
	if file.Size > MaxImage {
		return image, fmt.Sprintf("it is larger than %d MB", MaxImage>>20)
	}
	data, err := files.Read(file.Path, MaxImage)
	if err != nil {
		return image, "it cannot be read"
	}
	kind := http.DetectContentType(data)
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) {
		return image, "it is no PNG, JPEG, GIF or WebP"
	}
	return Image{MIMEType: kind, Data: data}, ""
}
