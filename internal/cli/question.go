package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/wire"
)

// asked is the open questions of a session that this client may answer, in the order in which it has shown them.
type asked []wire.Question

// update takes the list of the gateway. fresh has not been shown yet, closed was shown and is no longer open.
func (a *asked) update(list []wire.Question) (fresh, closed []wire.Question) {
	still := func(in []wire.Question, q wire.Question) bool {
		return slices.ContainsFunc(in, func(o wire.Question) bool { return o.ID == q.ID })
	}
	var kept asked
	for _, q := range *a {
		if still(list, q) {
			kept = append(kept, q)
		} else {
			closed = append(closed, q)
		}
	}
	for _, q := range list {
		if !still(kept, q) {
			fresh = append(fresh, q)
		}
	}
	*a = append(kept, fresh...)
	return fresh, closed
}

// current is the question that a number or a word answers: the one that was shown last.
func (a asked) current() (wire.Question, bool) {
	if len(a) == 0 {
		return wire.Question{}, false
	}
	return a[len(a)-1], true
}

func (a *asked) remove(id string) {
	*a = slices.DeleteFunc(*a, func(q wire.Question) bool { return q.ID == id })
}

// inWords says that open questions have closed, for which reason of the event.
func inWords(reason string) string {
	switch reason {
	case "answered":
		return "The question was answered elsewhere."
	case "closed":
		return "The question is closed: its turn no longer waits."
	default:
		return "The question is closed."
	}
}

// asks returns what the agent wants to do.
func asks(q wire.Question) string {
	return "The agent " + q.AgentID + " wants to do this for you: " + q.Text
}

// menu returns the question with a number for each option.
func menu(q wire.Question) string {
	var b strings.Builder
	b.WriteString(plain(asks(q)) + "\nAllow it?")
	for i, o := range q.Options {
		fmt.Fprintf(&b, "\n  %d  %s", i+1, plain(o.Label))
	}
	return b.String()
}

// choose returns the number of the option that a line names by its number, its label, or a word such as yes; 0 = the line is no answer. A
// line that is meant as an answer but names no single option is an error.
func choose(q wire.Question, line string) (option int64, err error) {
	if n, err := strconv.ParseInt(line, 10, 64); err == nil {
		if n < 1 || n > int64(len(q.Options)) {
			return 0, fmt.Errorf("the question has the answers 1 to %d", len(q.Options))
		}
		return n, nil
	}
	var fits []int64
	for i, o := range q.Options {
		if strings.EqualFold(o.Label, line) {
			return int64(i + 1), nil
		}
		words := []string{"n", "no", "deny"}
		if o.Allow {
			words = []string{"y", "yes", "allow"}
		}
		if slices.Contains(words, strings.ToLower(line)) {
			fits = append(fits, int64(i+1))
		}
	}
	switch len(fits) {
	case 0:
		return 0, nil
	case 1:
		return fits[0], nil
	default:
		return 0, fmt.Errorf("%s fits several answers; write the number of one", line)
	}
}

// questions lists the open questions of the session that this client may answer, the oldest first.
func (c *conversation) questions(ctx context.Context) ([]wire.Question, error) {
	key, err := c.key(ctx)
	if err != nil {
		return nil, err
	}
	var list wire.QuestionsListResult
	if err := c.conn.Call(ctx, "questions.list", wire.QuestionsListParams{Limit: new(int64(200))}, &list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Questions, func(q wire.Question) bool { return !q.Mine || q.SessionKey != key || len(q.Options) == 0 }), nil
}

// answer answers a question and returns what the answer has caused.
func (c *conversation) answer(ctx context.Context, id string, option int64) (string, error) {
	var out wire.QuestionsAnswerResult
	err := c.conn.Call(ctx, "questions.answer", wire.QuestionsAnswerParams{ID: id, Option: option}, &out)
	return out.Text, err
}
