package telegram

import (
	"fmt"
	"strings"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

const (
	// previewBytes is how much of a long answer is rendered for one preview message: enough for its 4096 units with their markup.
	previewBytes = 32 << 10
	// stepEvery is how often the time of a step is updated.
	stepEvery = 10 * time.Second
	// maxStep bounds the name of a step in bytes; lineUnits bounds its line with the blank line before it.
	maxStep   = 80
	lineUnits = 160
)

// frame is what a preview shows at one time: the text of the answer, and below it a line about the current step, "" if none.
type frame struct{ text, line string }

// frameOf returns what a preview shows now, and how long it shows this unless its state changes; 0 means forever.
func (p *previews) frameOf(v *preview) (f frame, until time.Duration) {
	p.mu.Lock()
	now := v.now
	p.mu.Unlock()
	if now.Step == "" {
		return frame{text: now.Text}, 0
	}
	took := max(0, time.Since(now.Since))
	shown := took.Truncate(stepEvery)
	return frame{now.Text, lineOf(now, shown)}, shown + stepEvery - took
}

// lineOf returns the line of a step: "go test… 40 s, 3 tools".
func lineOf(p channel.Preview, took time.Duration) string {
	var figures []string
	switch {
	case took >= time.Minute:
		figures = append(figures, fmt.Sprintf("%d min %d s", took/time.Minute, took%time.Minute/time.Second))
	case took > 0:
		figures = append(figures, fmt.Sprintf("%d s", took/time.Second))
	}
	if p.Steps > 1 {
		figures = append(figures, fmt.Sprintf("%d tools", p.Steps))
	}
	name := strings.Join(strings.Fields(chat.Printable(p.Step)), " ")
	if short := chat.Cut(name, maxStep); short != name {
		name = strings.TrimSpace(short)
	}
	return strings.TrimSpace(name + "… " + strings.Join(figures, ", "))
}

// begin returns the first part of the text, as much as one message shows, with the line below it; false if nothing is to be shown.
func (f frame) begin() (chunk, bool) {
	chunks := f.chunks(chat.Cut(f.text, previewBytes))
	if len(chunks) == 0 {
		return f.alone()
	}
	return f.below(chunks[0]), true
}

// end returns the part of the text that a draft shows: its end, because that is new. Earlier text is left out in steps of [previewBytes], so that the
// first line does not change each second. A code block that began earlier is opened again.
func (f frame) end() (chunk, bool) {
	text := f.text
	if from := (len(text)/previewBytes - 1) * previewBytes; from > 0 {
		from = len(chat.Cut(text, from))
		fences := strings.Count("\n"+text[:from], "\n```")
		text = text[from:]
		if fences%2 == 1 {
			text = "```\n" + text
		}
	}
	chunks := f.chunks(text)
	if len(chunks) == 0 {
		return f.alone()
	}
	return f.below(chunks[len(chunks)-1]), true
}

// chunks returns the messages of an answer, with room for the line.
func (f frame) chunks(text string) []chunk {
	if f.line == "" {
		return render(text).chunks(maxUnits)
	}
	return render(text).chunks(maxUnits - lineUnits)
}

// alone returns the line without an answer.
func (f frame) alone() (chunk, bool) {
	return chunk{html: "<i>" + escape(f.line) + "</i>", plain: f.line}, f.line != ""
}

// below returns a part of the text with the line below it.
func (f frame) below(part chunk) chunk {
	if f.line != "" {
		part.html = strings.TrimRight(part.html, "\n") + "\n\n<i>" + escape(f.line) + "</i>"
		part.plain = strings.TrimRight(part.plain, "\n") + "\n\n" + f.line
	}
	return part
}
