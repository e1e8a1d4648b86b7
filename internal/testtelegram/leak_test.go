package testtelegram_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"laneway/internal/testtelegram"
)

func TestALeakedTokenIsFoundWhereverItIsCut(t *testing.T) {
	t.Parallel()
	token := testtelegram.New(testtelegram.Config{}).Token()
	if !strings.Contains(token, testtelegram.Marker) {
		t.Fatalf("the token of the tests, %q, has no marker", token)
	}
	for cut := range len(token) {
		var l testtelegram.Leak
		var b strings.Builder
		w := l.Through("the log", &b)
		fmt.Fprint(w, "some words ", token[:cut])
		fmt.Fprint(w, token[cut:], " more words")
		if err := l.Verdict(); err == nil || !strings.Contains(err.Error(), "the log") {
			t.Errorf("cut at %d: %v", cut, err)
		}
		if b.String() != "some words "+token+" more words" {
			t.Errorf("passed on was %q", b.String())
		}
	}
	var l testtelegram.Leak
	if l.Verdict() == nil {
		t.Error("a search that saw nothing is content")
	}
	fmt.Fprint(l.Through("x", io.Discard), "123456789:", strings.ToLower(testtelegram.Marker))
	if err := l.Verdict(); err != nil {
		t.Error(err)
	}
}

func TestTheStreamsOfTheProcessAreSearched(t *testing.T) { //nolint:paralleltest // the streams belong to the process
	var l testtelegram.Leak
	restore, err := l.Streams()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, "this line of the test has a part of a token:", testtelegram.Marker)
	restore()
	if err := l.Verdict(); err == nil || !strings.Contains(err.Error(), "standard error") {
		t.Errorf("verdict %v", err)
	}
}
