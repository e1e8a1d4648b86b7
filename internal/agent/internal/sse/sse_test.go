package sse_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent/internal/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func all(r io.Reader, limit int) ([]sse.Event, error) {
	var events []sse.Event
	reader := sse.NewReader(r, limit)
	for {
		event, err := reader.Next()
		if err != nil {
			return events, err
		}
		events = append(events, event)
	}
}

func text(s string) []byte { return []byte(s) }

func TestReader(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   string
		want []sse.Event
	}{
		"NothingIsNothing":                 {"", nil},
		"BlankLinesAreNoEvents":            {"\n\n\r\n\r", nil},
		"OneEvent":                         {"data: a\n\n", []sse.Event{{Data: text("a")}}},
		"OneLeadingSpaceGoes":              {"data:  a\n\n", []sse.Event{{Data: text(" a")}}},
		"NoSpaceIsNeeded":                  {"data:a\n\n", []sse.Event{{Data: text("a")}}},
		"DataLinesAreJoined":               {"data: a\ndata\ndata: b\n\n", []sse.Event{{Data: text("a\n\nb")}}},
		"EmptyFirstDataLineCounts":         {"data\ndata: b\n\n", []sse.Event{{Data: text("\nb")}}},
		"AllLineEnds":                      {"data: a\r\n\r\ndata: b\r\rdata: c\n\n", []sse.Event{{Data: text("a")}, {Data: text("b")}, {Data: text("c")}}},
		"NamesArePartOfTheEvent":           {"event: ping\ndata: {}\n\n", []sse.Event{{Name: "ping", Data: text("{}")}}},
		"CommentsIdsAndRetriesAreNoEvents": {": alive\n\nid: 7\nretry: 10\nother: x\n\ndata: a\n\n", []sse.Event{{Data: text("a")}}},
		"AMarkAtTheStartGoes":              {"\xEF\xBB\xBFdata: a\n\n", []sse.Event{{Data: text("a")}}},
		"TheLastBlankLineMayBeMissing":     {"data: a\n", []sse.Event{{Data: text("a"), Partial: true}}},
		"TheLastLineEndMayBeMissing":       {"data: a\n\ndata: [DONE]", []sse.Event{{Data: text("a")}, {Data: text("[DONE]"), Partial: true}}},
		"HTMLIsNoEvent":                    {"<html>\n<body>502</body>\n</html>\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, reader := range map[string]io.Reader{
				"at once": strings.NewReader(tt.in), "byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
			} {
				got, err := all(reader, 0)
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: end: got %v, want io.EOF", how, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestReaderRefusesWhatIsTooLong(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"OneLine":   "data: " + strings.Repeat("a", 100) + "\n\n",
		"ManyLines": strings.Repeat("data: aaaa\n", 20) + "\n",
		"NoLineEnd": strings.Repeat("x", 100),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := all(strings.NewReader(in), 64); !errors.Is(err, sse.ErrTooLong) {
				t.Errorf("got %v, want ErrTooLong", err)
			}
		})
	}
}

func TestReaderHandsOnTheErrorOfItsSource(t *testing.T) {
	t.Parallel()
	for _, want := range []error{io.ErrUnexpectedEOF, errors.New("reset")} {
		in := io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(want))
		events, err := all(in, 0)
		if !errors.Is(err, want) || len(events) != 1 {
			t.Errorf("got %d events and %v, want 1 and %v", len(events), err, want)
		}
	}
}

// FuzzReader checks that no input panics, that events stay below the limit, and that events do not
// depend on the pieces in which bytes arrive.
func FuzzReader(f *testing.F) {
	f.Add([]byte("event: a\ndata: b\r\n\r\n: c\rdata\n\n"))
	f.Add([]byte("\xEF\xBB\xBFdata:{\"x\":1}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, errWhole := all(strings.NewReader(string(in)), 256)
		pieces, errPieces := all(iotest.OneByteReader(strings.NewReader(string(in))), 256)
		if diff := cmp.Diff(whole, pieces); diff != "" {
			t.Errorf("pieces differ:\n%s", diff)
		}
		if (errWhole == nil) != (errPieces == nil) || errors.Is(errWhole, io.EOF) != errors.Is(errPieces, io.EOF) {
			t.Errorf("ends differ: %v and %v", errWhole, errPieces)
		}
		for _, event := range whole {
			if len(event.Data)+len(event.Name) > 256 {
				t.Errorf("event of %d bytes over the limit of 256", len(event.Data)+len(event.Name))
			}
		}
	})
}

func ExampleReader() {
	events := sse.NewReader(strings.NewReader(": hello\n\ndata: one\n\nevent: end\ndata: two\n\n"), 0)
	for {
		event, err := events.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%q %s\n", event.Name, event.Data)
	}
	// Output:
	// "" one
	// "end" two
	// EOF
}
