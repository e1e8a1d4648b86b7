package teste2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// aDate of a document is in the past; the test uses the same form with a future date.
	aDate = regexp.MustCompile(`\b20\d\d-\d\d-\d\d`)
	// manyForms matches the forms in a sentence of the gateway, such as the refusal of a time.
	manyForms = regexp.MustCompile(`(?m)^/remind WHEN TEXT - .*: (.+)\.$|; write (.+) or a cron expression\.$`)
)

// commandsOf returns the commands and the forms of times in the section of docs/cron.md about chats.
func commandsOf(t *testing.T) (commands, times []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cron.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## From a chat\n")
	section, _, more := strings.Cut(section, "\n## ")
	if !found || !more {
		t.Fatal("docs/cron.md has no section about chats")
	}
	inTimes := false
	for line := range strings.Lines(section) {
		inTimes = strings.HasPrefix(line, "| time |") || inTimes && strings.HasPrefix(line, "|")
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			switch {
			case inTimes:
				times = append(times, span[1])
			case strings.HasPrefix(span[1], "/"):
				commands = append(commands, span[1])
			}
		}
	}
	return commands, times
}

// formsIn returns the forms in a sentence of the gateway: /help and the refusal of a time.
func formsIn(t *testing.T, sentence string) []string {
	t.Helper()
	found := manyForms.FindStringSubmatch(sentence)
	if found == nil {
		t.Fatalf("%q names no forms", sentence)
	}
	return strings.Split(found[1]+found[2], ", ")
}

// written returns the messages for a command or a time of the documents. n makes the names of jobs different.
func written(commands, times []string, n int) (texts []string) {
	day := time.Now().AddDate(0, 0, 20).Format(time.DateOnly)
	for _, command := range commands {
		texts = append(texts, strings.NewReplacer("WHEN", "in 20m", "TEXT", "second").Replace(command))
	}
	for _, when := range times {
		when = aDate.ReplaceAllString(when, day)
		for _, form := range []string{`/remind %s form %d`, `/remind "%s" form %d`, `/cron add %s form %d`, `/cron add "%s" form %d`, `/cron add “%s” form %d`} {
			n++
			texts = append(texts, fmt.Sprintf(form, when, n))
		}
	}
	return texts
}

// Every command and every form of a time in docs/cron.md, /help and the refusal of a time is sent unchanged: in Telegram by a separate
// person for each, on the web in one conversation.
func TestEveryFormOfTheDocumentsWorksInTelegramAndOnTheWeb(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	c := openChatroom(t, "", "    access: open\n", testtelegram.Config{})
	c.Start()
	conn, events, n := connect(t, c.Gateway), watch(t, c.Gateway), 0
	web := func(text string) string {
		n++
		say(t, conn, "agent:main:main", fmt.Sprint("form-", n), text)
		return events.await(t, fmt.Sprint("form-", n)).text
	}
	commands, times := commandsOf(t)
	times = append(times, formsIn(t, web("/help"))...)
	times = append(times, formsIn(t, web("/remind soon tea"))...)
	if len(commands) < 10 || len(times) < 20 {
		t.Fatalf("the documents have the commands %q and the times %q", commands, times)
	}
	for _, text := range append(before(""), written(commands, times, 0)...) {
		wantDone(t, "on the web", text, web(text))
	}
	var people sync.WaitGroup
	ctx := withTimeout(t, 3*time.Minute)
	for i, text := range written(commands, times, 1000) {
		person := int64(1000 + i)
		c.Telegram.AddPrivate(person, fmt.Sprint("Person ", person))
		people.Go(func() {
			for n, said := range append(before(text), text) {
				c.Telegram.Say(person, person, said)
				err := c.Telegram.Await(ctx, func() bool { return len(c.Telegram.Texts(person)) > n })
				if err != nil {
					t.Errorf("in Telegram, %s was not answered: %v", said, err)
					return
				}
				wantDone(t, "in Telegram", said, c.Telegram.Texts(person)[n])
			}
		})
	}
	people.Wait()
	c.Close()
}

// before returns the jobs that a command of the documents needs; a form of a time needs none.
func before(text string) []string {
	if strings.Contains(text, " form ") {
		return nil
	}
	return []string{"/remind in 3h first", "/remind in 4h second"}
}

// wantDone reports the answer to a command that was not executed.
func wantDone(t *testing.T, where, text, answer string) {
	t.Helper()
	planned := !strings.Contains(text, " form ") || strings.HasPrefix(answer, "I will remind you ") || strings.HasPrefix(answer, "Planned: ")
	if !planned || strings.Contains(answer, "failed") || strings.HasPrefix(answer, "You may not") {
		t.Errorf("%s, %s was answered with %q", where, text, answer)
	}
}
