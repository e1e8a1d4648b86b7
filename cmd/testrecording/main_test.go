package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestThePictureIsXMLWithEachLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", columns) + "rest"
	picture := xml.NewDecoder(strings.NewReader(draw([]string{`$ laneway send "a < b & c"`, "a < b & c", long})))
	var texts []string
	for {
		token, err := picture.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok && strings.TrimSpace(string(data)) != "" {
			texts = append(texts, string(data))
		}
	}
	want := []string{`$ laneway send "a < b & c"`, "a < b & c", strings.Repeat("x", columns), "rest"}
	if got := texts[1:]; !slices.Equal(got, want) { // the first is the style
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAddressIsReadFromTheStart(t *testing.T) {
	t.Parallel()
	address, err := listenerOf(strings.NewReader("laneway is running\nlistening on 127.0.0.1:4711 (this machine only)\nlater\n"))
	if err != nil || address != "127.0.0.1:4711" {
		t.Errorf("got %q, %v", address, err)
	}
	if _, err := listenerOf(strings.NewReader("laneway: not starting\n")); err == nil {
		t.Error("a gateway that ended is no recording")
	}
}
