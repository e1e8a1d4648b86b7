package command

import (
	"bytes"
	"io"
	"log/slog"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
)

// hear writes raw output to an answer in the pieces in which in yields it.
func hear(in io.Reader, mode Output) (string, string) {
	answer := jsonline.NewAnswer(1<<16, func(agent.Event) {}, slog.New(slog.DiscardHandler))
	out := &output{mode: mode, answer: answer}
	buffer := make([]byte, 64)
	var failed error
	for {
		n, err := in.Read(buffer)
		if n > 0 && failed == nil {
			failed = out.write(buffer[:n])
		}
		if err != nil {
			break
		}
	}
	if failed == nil {
		failed = out.close()
	}
	said := ""
	if answer.Failed != nil {
		said = answer.Failed.Message
	}
	if failed != nil {
		said += failed.Error()
	}
	return answer.Text.Text(), said
}

// FuzzOutput checks that no output breaks the reader, that the answer is clean text, and that it
// does not depend on the pieces in which output arrives.
func FuzzOutput(f *testing.F) {
	for _, seed := range []string{
		"{\"delta\":\"a\"}\n{\"final\":\"ab\"}\n", "plain\n", "\n {\"error\":\"x\",\"reason\":\"timeout\"}", "{\"usage\":{\"inputTokens\":-1e99}}\n",
		"{\"delta\":\"\\ud83d\"}\n\xff\xfe", "{", "\xf0\x9f",
	} {
		for i := range 3 {
			f.Add([]byte(seed), i)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, which int) {
		mode := []Output{OutputAuto, OutputText, OutputJSON}[uint(which)%3]
		whole, saidWhole := hear(bytes.NewReader(raw), mode)
		pieces, saidPieces := hear(iotest.OneByteReader(bytes.NewReader(raw)), mode)
		if !utf8.ValidString(whole) || bytes.IndexByte([]byte(whole), 0) >= 0 {
			t.Errorf("answer %q is not clean", whole)
		}
		if utf8.Valid(raw) && (whole != pieces || saidWhole != saidPieces) {
			t.Errorf("at once: %q %q; byte by byte: %q %q", whole, saidWhole, pieces, saidPieces)
		}
	})
}
