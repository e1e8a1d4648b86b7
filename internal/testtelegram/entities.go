package testtelegram

import (
	"errors"
	"fmt"
	"html"
	"strings"
	"unicode/utf16"
)

// MaxText is the longest text of a message in UTF-16 units, counted after the entities were parsed.
const MaxText = 4096

// MaxEntities is the largest number of entities of a message, and MaxEntityBytes about what their arguments may have together.
const (
	MaxEntities    = 100
	MaxEntityBytes = 9500
)

// EntityBytes returns the bytes of the arguments of entities.
func EntityBytes(entities []Entity) int {
	n := 0
	for _, e := range entities {
		n += len(e.Arg)
	}
	return n
}

// Units returns the length of a string as Telegram counts it.
func Units(s string) int { return len(utf16.Encode([]rune(s))) }

// Entity is a piece of text with a style; Offset and Length are in bytes.
type Entity struct {
	Type           string
	Offset, Length int
	// Arg is the address of a link or the language of a code block.
	Arg string
}

// errParse is wrapped by every refusal of ParseHTML.
var errParse = errors.New("can't parse entities")

// ParseHTML reads Telegram's HTML: it returns the displayed text and its entities, or the error with which Telegram would refuse it.
// nested names the entities that are nested against the rules, "" if none.
func ParseHTML(src string) (text string, entities []Entity, nested string, err error) {
	p := htmlParser{}
	for src != "" {
		i := strings.IndexByte(src, '<')
		if i < 0 {
			i = len(src)
		}
		p.text.WriteString(unescape(src[:i]))
		src = src[i:]
		if src == "" {
			break
		}
		end := strings.IndexByte(src, '>')
		if end < 0 {
			return "", nil, "", fmt.Errorf("%w: unclosed start tag", errParse)
		}
		if err := p.tag(src[1:end]); err != nil {
			return "", nil, "", err
		}
		src = src[end+1:]
	}
	if len(p.stack) > 0 {
		return "", nil, "", fmt.Errorf("%w: can't find end tag corresponding to start tag %q", errParse, p.stack[len(p.stack)-1].Type)
	}
	return p.text.String(), p.done, p.nested, nil
}

// unescape replaces the four named entities and the numbers that Telegram supports; everything else is unchanged.
func unescape(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s, ';')
		name := ""
		if end > 0 && end < 12 {
			name = s[1:end]
		}
		if name != "lt" && name != "gt" && name != "amp" && name != "quot" && !strings.HasPrefix(name, "#") {
			b.WriteByte('&')
			s = s[1:]
			continue
		}
		b.WriteString(html.UnescapeString(s[:end+1]))
		s = s[end+1:]
	}
	return b.String()
}

type htmlParser struct {
	text   strings.Builder
	stack  []Entity
	done   []Entity
	nested string
}

// tagNames maps the spellings of a tag to the type of its entity.
func tagType(name string) string {
	switch name {
	case "b", "strong":
		return "bold"
	case "i", "em":
		return "italic"
	case "u", "ins":
		return "underline"
	case "s", "strike", "del":
		return "strikethrough"
	case "tg-spoiler":
		return "spoiler"
	case "a":
		return "text_link"
	case "code", "pre", "blockquote":
		return name
	default:
		return ""
	}
}

func (p *htmlParser) tag(tag string) error {
	if name, closing := strings.CutPrefix(tag, "/"); closing {
		return p.closeTag(tagType(strings.TrimSpace(name)))
	}
	name, attributes, _ := strings.Cut(tag, " ")
	e := Entity{Type: tagType(name), Offset: p.text.Len()}
	switch {
	case e.Type == "":
		return fmt.Errorf("%w: unsupported start tag %q at byte offset %d", errParse, name, p.text.Len())
	case name == "a":
		href, quoted := strings.CutPrefix(strings.TrimSpace(attributes), `href="`)
		if !quoted || !strings.HasSuffix(href, `"`) {
			return fmt.Errorf("%w: a link needs href", errParse)
		}
		e.Arg = unescape(strings.TrimSuffix(href, `"`))
	case name == "code" && attributes != "":
		class, isClass := strings.CutPrefix(attributes, `class="language-`)
		if !isClass || len(p.stack) == 0 || p.stack[len(p.stack)-1].Type != "pre" {
			return fmt.Errorf("%w: code takes a language inside of pre only", errParse)
		}
		p.stack[len(p.stack)-1].Arg = unescape(strings.TrimSuffix(class, `"`))
		e.Type = "language"
	case attributes != "":
		return fmt.Errorf("%w: %s takes no attributes", errParse, name)
	}
	p.checkNesting(e)
	p.stack = append(p.stack, e)
	return nil
}

// checkNesting checks the documented rules of nesting.
func (p *htmlParser) checkNesting(e Entity) {
	for _, outer := range p.stack {
		hard := outer.Type == "code" || (outer.Type == "pre" && e.Type != "language")
		inner := (e.Type == "code" || e.Type == "pre") && outer.Type != "blockquote"
		same := outer.Type == e.Type
		if hard || inner || same {
			p.nested = e.Type + " inside of " + outer.Type
		}
	}
}

func (p *htmlParser) closeTag(kind string) error {
	if len(p.stack) == 0 {
		return fmt.Errorf("%w: unexpected end tag", errParse)
	}
	top := p.stack[len(p.stack)-1]
	if top.Type == "language" && kind == "code" {
		p.stack = p.stack[:len(p.stack)-1]
		return nil
	}
	if top.Type != kind {
		return fmt.Errorf("%w: unmatched end tag, expected %q, found %q", errParse, top.Type, kind)
	}
	p.stack = p.stack[:len(p.stack)-1]
	top.Length = p.text.Len() - top.Offset
	if top.Length > 0 {
		p.done = append(p.done, top)
	}
	return nil
}
