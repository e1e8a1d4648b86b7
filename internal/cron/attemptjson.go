package cron

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EncodeAttempts encodes the attempts of a run; no attempts are an empty list.
func EncodeAttempts(list []Attempt) (string, error) {
	if len(list) == 1 && list[0].simple() {
		return list[0].text(), nil
	}
	rows := make([]attemptRow, 0, len(list))
	for _, a := range list {
		rows = append(rows, attemptRow{
			Number: a.Number, State: a.State, StartedAtMs: millis(a.StartedAt), FinishedAtMs: millis(a.FinishedAt),
			Error: a.Error, ErrorClass: a.ErrorClass, Node: a.Node,
		})
	}
	text, err := encodeText(rows)
	if err != nil {
		return "", fmt.Errorf("writing attempts: %w", err)
	}
	return text, nil
}

// simple reports whether text can encode the attempt: it has no error, and its strings need no escaping in JSON.
func (a *Attempt) simple() bool {
	return a.Error == "" && a.ErrorClass == "" && verbatim(string(a.State)) && verbatim(a.Node)
}

func verbatim(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	return true
}

// text is the list of one simple attempt. Every run writes it twice, so it is built without reflection.
func (a *Attempt) text() string {
	b := append(make([]byte, 0, 160), `[{"attempt":`...)
	b = strconv.AppendInt(b, int64(a.Number), 10)
	if a.State != "" {
		b = append(append(append(b, `,"state":"`...), a.State...), '"')
	}
	if at := millis(a.StartedAt); at != 0 {
		b = strconv.AppendInt(append(b, `,"startedAtMs":`...), at, 10)
	}
	if at := millis(a.FinishedAt); at != 0 {
		b = strconv.AppendInt(append(b, `,"finishedAtMs":`...), at, 10)
	}
	if a.Node != "" {
		b = append(append(append(b, `,"node":"`...), a.Node...), '"')
	}
	return string(append(b, "}]"...))
}

// DecodeAttempts decodes the result of [EncodeAttempts]. An empty string means no attempts.
func DecodeAttempts(text string) ([]Attempt, error) {
	if text == "" || text == "[]" {
		return nil, nil
	}
	if a, ok := simpleAttempt(text); ok {
		return []Attempt{a}, nil
	}
	var rows []attemptRow
	if err := decodeText(text, &rows); err != nil {
		return nil, fmt.Errorf("the stored attempts cannot be read: %w", err)
	}
	var list []Attempt
	for _, r := range rows {
		list = append(list, Attempt{
			Number: r.Number, State: r.State, StartedAt: moment(r.StartedAtMs), FinishedAt: moment(r.FinishedAtMs),
			Error: r.Error, ErrorClass: r.ErrorClass, Node: r.Node,
		})
	}
	return list, nil
}

// simpleAttempt decodes the result of [Attempt.text]; ok is false for every other string. Every run is read at its start, so this also avoids reflection.
func simpleAttempt(text string) (a Attempt, ok bool) {
	rest, ok := strings.CutPrefix(text, `[{"attempt":`)
	if !ok {
		return a, false
	}
	number, rest, ok := leadingNumber(rest)
	a.Number = int(number)
	if word, after, found := leadingWord(rest, `,"state":"`); found {
		a.State, rest = AttemptState(word), after
	}
	for _, m := range []struct {
		name string
		at   *time.Time
	}{{`,"startedAtMs":`, &a.StartedAt}, {`,"finishedAtMs":`, &a.FinishedAt}} {
		after, found := strings.CutPrefix(rest, m.name)
		if !found {
			continue
		}
		ms, after, valid := leadingNumber(after)
		*m.at, rest, ok = moment(ms), after, ok && valid
	}
	if word, after, found := leadingWord(rest, `,"node":"`); found {
		a.Node, rest = word, after
	}
	return a, ok && rest == "}]"
}

// leadingNumber parses a leading non-negative number.
func leadingNumber(text string) (n int64, rest string, ok bool) {
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(text[:end], 10, 64)
	return n, text[end:], err == nil && (text[0] != '0' || end == 1)
}

// leadingWord parses a leading JSON member whose string has no escapes.
func leadingWord(text, name string) (word, rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, name)
	if !ok {
		return "", text, false
	}
	word, rest, ok = strings.Cut(rest, `"`)
	return word, rest, ok && verbatim(word)
}
