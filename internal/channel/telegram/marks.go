package telegram

import (
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"laneway/internal/chat"
)

// marks is the extension of goldmark for * and ~ next to Chinese, Japanese and Korean characters. CommonMark decides by white space and punctuation whether a mark
// opens or closes, and these languages have no spaces between words, so that a mark after a full stop would close nothing. [chat.Flanks] is the rule. Text without such
// characters is read as before. The page and the terminal have the same rule; testdata/marks.json has their common cases.
type marks struct{}

// Extend implements goldmark.Extender.
func (marks) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(parser.WithInlineParsers(
		util.Prioritized(markParser{chars: "*_", longest: 0, node: func(n int) ast.Node { return ast.NewEmphasis(n) }}, 490),
		util.Prioritized(markParser{chars: "~", longest: 2, node: func(int) ast.Node { return east.NewStrikethrough() }}, 490),
	))
}

// markParser reads runs of one of its characters, of at most longest (0 = any), as marks. Its marks open and close nodes.
type markParser struct {
	chars   string
	longest int
	node    func(consumes int) ast.Node
}

// Trigger implements parser.InlineParser.
func (p markParser) Trigger() []byte { return []byte(p.chars) }

// Parse implements parser.InlineParser.
func (p markParser) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, segment := block.PeekLine()
	d := parser.ScanDelimiter(line, before, 1, p)
	if d == nil || p.longest > 0 && (d.OriginalLength > p.longest || before == rune(d.Char)) {
		return nil
	}
	if d.Char != '_' { // _ is a letter of names, so its rule stays
		after := ' '
		if d.OriginalLength < len(line) {
			after, _ = utf8.DecodeRune(line[d.OriginalLength:])
		}
		d.CanOpen, d.CanClose = chat.Flanks(before, after)
	}
	d.Segment = segment.WithStop(segment.Start + d.OriginalLength)
	block.Advance(d.OriginalLength)
	pc.PushDelimiter(d)
	return d
}

// IsDelimiter implements parser.DelimiterProcessor.
func (p markParser) IsDelimiter(b byte) bool { return b == p.chars[0] || b == p.chars[len(p.chars)-1] }

// CanOpenCloser implements parser.DelimiterProcessor.
func (markParser) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	return opener.Char == closer.Char
}

// OnMatch implements parser.DelimiterProcessor.
func (p markParser) OnMatch(consumes int) ast.Node { return p.node(consumes) }
