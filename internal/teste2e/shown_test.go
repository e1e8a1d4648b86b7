package teste2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// answering lets a person answer a message of the bot with Telegram's Reply. file is the name of
// the document that it shows; "" = it is a text.
func answering(c *Chatroom, m testtelegram.Message, chat int64, file string) func(map[string]any) {
	kind := "private"
	if chat < 0 {
		kind = "supergroup"
	}
	replied := map[string]any{
		"message_id": m.ID, "date": m.SentAt.Unix(), "chat": map[string]any{"id": chat, "type": kind},
		"from": map[string]any{"id": 123456789, "is_bot": true, "first_name": "Lane", "username": c.Telegram.Username()},
	}
	if replied["text"] = m.Text; file != "" {
		delete(replied, "text")
		replied["document"] = map[string]any{"file_id": "f", "file_unique_id": "u", "file_name": file}
	}
	return testtelegram.With("reply_to_message", replied)
}

// asked returns what the model got in the newest turn whose input contains part, one message after
// the other.
func (c *Chatroom) asked(part string) string {
	for _, call := range slices.Backward(c.Model.Calls()) {
		if !strings.Contains(call.Last(), part) {
			continue
		}
		var all strings.Builder
		for _, m := range call.Messages {
			all.WriteString(m.Role + ": " + m.Content + "\n")
		}
		return all.String()
	}
	return ""
}

// must runs a command of the operator.
func (c *Chatroom) must(args ...string) {
	c.t.Helper()
	if out, errs, code := c.CLI(c.t.Context(), "", args...); code != 0 {
		c.t.Fatalf("laneway %q: %q, %q, %d", args, out, errs, code)
	}
}

// announces is a chatroom whose model answers the work of a job with an offer that names it.
func announces(t *testing.T, database string) *Chatroom {
	c := openChatroom(t, database, "    allow: [7]\n    groups: [-100500]\n    members: any\n    activation: always\n", testtelegram.Config{})
	c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
		if _, job, ok := strings.Cut(call.Last(), "work of "); ok {
			return testmodel.Reply{Pieces: []string{"Shall I order filters of " + job + ".?\nThey are cheap."}}
		}
		if strings.Contains(call.Last(), "deliberate") {
			return testmodel.Reply{Status: 400}
		}
		return testmodel.Reply{Pieces: []string{"done"}}
	})
	c.Start()
	c.Await("the first poll", c.Telegram.Polling)
	return c
}

// What something else wrote into a chat is what its person answers: the agent gets it exactly once,
// with what wrote it, also when the process was killed before it knew that Telegram had it.
func TestTextThatAPersonSawIsKnownOnce(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := announces(t, database)
		for i, place := range []struct {
			chat int64
			to   string
		}{{anna, "7"}, {forum, "-100500"}} {
			for _, kind := range []string{"isolated", "session", "reminder"} {
				for _, how := range []string{"plain", "reply", "plain after a kill", "reply after a kill"} {
					c.shownOnce(fmt.Sprintf("%s%d%s", kind, i, strings.ReplaceAll(how, " ", "")), place.chat, place.to, kind, how)
				}
			}
		}
		c.Close()
	})
}

// During quiet hours jobs write nothing, except what is urgent or was asked for; then each job
// writes its last answer.
func TestQuietHoursHoldWhatJobsWrite(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n", testtelegram.Config{})
		var runs atomic.Int32
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.Contains(call.Last(), "work of digest") {
				return testmodel.Reply{Pieces: []string{fmt.Sprintf("digest %d.", runs.Add(1))}}
			}
			if strings.Contains(call.Last(), "hello") {
				return testmodel.Reply{Pieces: []string{"good morning"}}
			}
			return testmodel.Reply{Pieces: []string{"done: " + call.Last()}}
		})
		c.Start()
		now := time.Now().UTC()
		c.Telegram.Say(anna, anna, "/timezone UTC")
		c.Telegram.Say(anna, anna, "/quiet "+now.Add(-time.Hour).Format("15:04")+"-"+now.Add(5*time.Hour).Format("15:04"))
		c.Await("the quiet hours", func() bool { return c.Count(anna, "Quiet hours here are now") == 1 })
		run := func(args ...string) string {
			t.Helper()
			out, errs, code := c.CLI(t.Context(), "", args...)
			if code != 0 {
				t.Fatalf("laneway %q: %q, %q, %d", args, out, errs, code)
			}
			return out
		}
		add := func(name string, more ...string) {
			run(append([]string{"cron", "add", "--name", name, "--message", "work of " + name, "--deliver", "telegram:7"}, more...)...)
		}
		add("digest", "--every", "1s", "--max-runs", "3")
		add("alarm", "--every", "24h", "--urgent") // a slot each second could be missed on a busy machine
		run("cron", "run", "alarm")
		c.Await("the urgent answer", func() bool { return c.Count(anna, "done: work of alarm") == 1 })
		c.Await("the end of the job", func() bool {
			out := run("cron", "runs", "digest")
			return strings.Contains(run("cron", "get", "digest"), "it does not fire") && !strings.Contains(out, "running") && !strings.Contains(out, "queued")
		})
		run("cron", "run", "alarm")
		c.Telegram.Say(anna, anna, "/remind in 1s the oven")
		c.Telegram.Say(anna, anna, "hello")
		c.Await("what does not wait", func() bool {
			return c.Count(anna, "done: work of alarm") == 2 && c.Count(anna, "Reminder: the oven") == 1 && c.Count(anna, "good morning") == 1
		})
		// The schedule has had further slots by now; the last run is what is asked for. On a busy machine
		// its slot is one that was skipped.
		if why := run("cron", "why", "digest"); !strings.Contains(why, "waits for the end of quiet hours at") && !strings.Contains(why, "active") {
			t.Errorf("the last run of the job is explained by %q", why)
		}
		if n := c.Count(anna, "digest"); n != 0 {
			t.Errorf("%d answers of the job during quiet hours: %q", n, c.seen(anna))
		}
		c.Telegram.Say(anna, anna, "/quiet off")
		c.Await("what waited", func() bool { return c.Count(anna, "digest") > 0 })
		c.rest()
		if n := c.Count(anna, "digest"); n != 1 || c.Count(anna, fmt.Sprintf("digest %d.", runs.Load())) != 1 {
			t.Errorf("after quiet hours: %q", c.seen(anna))
		}
	})
}

// shownOnce is one case of TestTextThatAPersonSawIsKnownOnce.
func (c *Chatroom) shownOnce(name string, chat int64, to, kind, how string) {
	c.t.Helper()
	text, origin, note := "Shall I order filters of "+name+".?", "job "+name, "job "+name+" wrote here:\n> Shall I"
	kill := strings.HasSuffix(how, "kill")
	if kind == "reminder" {
		text, origin, note = "order filters of "+name+".", "a reminder", "a reminder wrote here:\n> Reminder: "+"order filters of "+name
		c.Telegram.Say(chat, anna, "/remind in 5s "+text)
		c.Await("the reminder is accepted", func() bool { return c.Count(chat, text) == 1 })
		c.rest()
	}
	before := c.Count(chat, text)
	if kill {
		c.Telegram.Break("sendMessage", testtelegram.Fault{After: true, Hang: true})
	}
	if kind != "reminder" {
		args := []string{"cron", "add", "--name", name, "--every", "24h", "--message", "work of " + name, "--deliver", "telegram:" + to}
		if kind == "session" {
			args = append(args, "--session", "session:reports")
		}
		c.must(args...)
		c.must("cron", "run", name)
	}
	c.Await(name+" is shown", func() bool { return c.Count(chat, text) == before+1 })
	message := c.last(chat).Message
	words := "yes, do it: " + name
	answer := func() {
		var more []func(map[string]any)
		if strings.HasPrefix(how, "reply") {
			more = append(more, answering(c, message, chat, ""))
		}
		c.Telegram.Say(chat, anna, words, more...)
	}
	if kill {
		c.Kill()
		c.remember()
		if strings.HasPrefix(how, "reply") {
			answer() // it is read before the message is sent again
		}
		c.Start()
		c.Await(name+" is sent again", func() bool { return c.Count(chat, text) == before+2 })
	}
	if !kill || strings.HasPrefix(how, "plain") {
		c.rest()
		answer()
	}
	testrun.Eventually(c.t, "the model is asked: "+words, func() bool { return c.asked(words) != "" })
	c.rest()
	got := c.asked(words)
	if n := strings.Count(got, text); n != 1 {
		c.t.Errorf("%s: the model got the text %d times: %s", name, n, got)
	}
	known := strings.Count(got, note) == 1
	if how == "reply" && !strings.Contains(got, "[answers the message above: an earlier message of this bot ("+origin+", ") {
		known = false
	}
	if how == "reply after a kill" && strings.Contains(got, "[answers an earlier message of this bot]\n> ") {
		known = true // it was not known yet that it had arrived
	}
	if !known {
		c.t.Errorf("%s: the model did not get what had written the text: %s", name, got)
	}
}

// What is written into a topic, into the page, about a job, or for a client of the protocol is
// known once as well, and a quoted part is named.
func TestEachKindOfTextIsKnownOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := announces(t, database)
		known := func(words, text string, notes ...string) {
			t.Helper()
			testrun.Eventually(t, "the model is asked: "+words, func() bool { return c.asked(words) != "" })
			c.rest()
			got := c.asked(words)
			if n := strings.Count(got, text); n != 1 {
				t.Errorf("%s: the model got %q %d times: %s", words, text, n, got)
			}
			for _, note := range notes {
				if !strings.Contains(got, note) {
					t.Errorf("%s: the model did not get %q: %s", words, note, got)
				}
			}
		}
		c.must("cron", "add", "--name", "topical", "--every", "24h", "--message", "work of topical", "--deliver", "telegram:-100500:10")
		c.must("cron", "run", "topical")
		c.Await("the answer in the topic", func() bool { return c.Count(forum, "filters of topical.") == 1 })
		c.rest()
		c.Telegram.Say(forum, anna, "yes, in the topic", testtelegram.InTopic(10))
		known("yes, in the topic", "filters of topical.", "job topical wrote here:\n> Shall I")
		c.Telegram.Say(forum, anna, "this part", testtelegram.InTopic(10), answering(c, c.Telegram.Messages(forum)[0], forum, ""),
			testtelegram.With("quote", map[string]any{"text": "They are cheap.", "position": 37}))
		known("this part", "filters of topical.", "[answers the message above: an earlier message of this bot (job topical, ", "> They are cheap.")

		c.must("cron", "add", "--name", "broken", "--every", "24h", "--message", "deliberate", "--deliver", "telegram:7", "--alert-after", "1", "--retries", "0")
		c.must("cron", "run", "broken")
		c.Await("the alert", func() bool { return c.Count(anna, "broken") > 0 })
		c.rest()
		alert, _, _ := strings.Cut(c.last(anna).Message.Text, "\n")
		c.Telegram.Say(anna, anna, "what is wrong?")
		known("what is wrong?", alert, "wrote here:\n> ")

		client := mustDial(t, c.Gateway, nil)
		defer client.Close()
		params := map[string]any{"message": "work of client", "sessionKey": "agent:main:desk", "idempotencyKey": "r1", "deliver": true, "channel": "telegram", "to": "7"}
		if _, err := client.Call("agent", params, time.Minute); err != nil {
			t.Fatal(err)
		}
		c.Await("the answer for the client", func() bool { return c.Count(anna, "filters of client.") == 1 })
		c.rest()
		c.Telegram.Say(anna, anna, "yes, for the client")
		known("yes, for the client", "filters of client.", "wrote here:\n> Shall I")

		c.must("cron", "add", "--name", "paged", "--every", "24h", "--message", "work of paged", "--deliver", "web:agent:main:main")
		c.must("cron", "run", "paged", "--wait")
		c.rest()
		c.must("send", "--session", "agent:main:main", "yes, on the page")
		known("yes, on the page", "filters of paged.", "job paged wrote here:\n> Shall I")
		c.Close()
	})
}

// A person asks where an answer is by a reply to the message, or to its answer.
func TestWhyAnswersRepliesToMessagesAndAnswers(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7, 8]\n", testtelegram.Config{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.Contains(call.Last(), "too much") {
				return testmodel.Reply{Status: 429}
			}
			return testmodel.Reply{Pieces: []string{"done: " + call.Last()}}
		})
		c.Start()
		c.Await("the first poll", c.Telegram.Polling)
		say := func(text, shown string) (message map[string]any) {
			u := c.Telegram.Message(anna, anna, text)
			message, _ = u["message"].(map[string]any)
			c.Telegram.Push(u)
			c.Await("the answer to "+text, func() bool { return c.Count(anna, shown) == 1 })
			c.rest()
			return message
		}
		first := say("order filters", "done: order filters")
		answer := c.last(anna).Message
		refused := say("too much", "try again")
		for name, c2 := range map[string]struct {
			reply func(map[string]any)
			want  []string
		}{
			"one's own":    {testtelegram.With("reply_to_message", first), []string{"It asked the model once. ", fmt.Sprintf("as message %d ", answer.ID)}},
			"its answer":   {answering(c, answer, anna, ""), []string{"It asked the model once. ", fmt.Sprintf("as message %d ", answer.ID)}},
			"that failed":  {testtelegram.With("reply_to_message", refused), []string{"It asked the model once (429 once). ", "without an answer (failed)"}},
			"that is none": {answering(c, testtelegram.Message{ID: 9999, Text: "other"}, anna, ""), []string{"there is no such message of yours"}},
		} {
			before := len(c.Telegram.Messages(anna))
			c.Telegram.Say(anna, anna, "/why", c2.reply)
			c.Await("why: "+name, func() bool { return len(c.Telegram.Messages(anna)) > before })
			for _, want := range c2.want {
				if got := c.last(anna).Message.Text; !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			c.rest()
		}
		c.Close()
	})
}

// A reply selects one of several messages, a part of a long answer, or a file.
func TestRepliesNameTheMessageThatTheySelect(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := announces(t, database)
		for _, job := range []string{"one", "two", "three"} {
			c.must("cron", "add", "--name", job, "--every", "24h", "--message", "work of "+job, "--deliver", "telegram:7")
			c.must("cron", "run", job)
			c.Await("the answer of "+job, func() bool { return c.Count(anna, "filters of "+job+".") == 1 })
		}
		c.rest()
		messages := c.Telegram.Messages(anna)
		c.Telegram.Say(anna, anna, "yes, this one", answering(c, messages[1], anna, ""))
		c.Await("the answer", func() bool { return c.Count(anna, "done") == 1 })
		got := c.asked("yes, this one")
		if !strings.Contains(got, "[answers the message above: an earlier message of this bot (job two, ") || strings.Count(got, "filters of two.") != 1 {
			t.Errorf("the model got: %s", got)
		}
		var story strings.Builder
		for i := range 900 {
			fmt.Fprintf(&story, "word%d ", i)
		}
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch last := call.Last(); {
			case strings.Contains(last, "a long story"):
				return testmodel.Reply{Pieces: []string{story.String()}}
			case strings.Contains(last, "a file") && call.Messages[len(call.Messages)-1].Role == "user":
				return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "c1", Name: "send_file", Args: `{"name":"tides.txt","text":"high"}`}}}
			}
			return testmodel.Reply{Pieces: []string{"ready"}}
		})
		c.Telegram.Say(anna, anna, "tell me a long story")
		c.Await("the end of the story", func() bool { return c.Count(anna, "word899") == 1 })
		c.rest()
		second := c.last(anna).Message
		first, _, _ := strings.Cut(second.Text, " ")
		c.Telegram.Say(anna, anna, "what is this?", answering(c, second, anna, ""))
		testrun.Eventually(t, "the part is answered", func() bool { return c.asked("what is this?") != "" })
		got = c.asked("what is this?")
		if !strings.Contains(got, "[answers the message above: an earlier message of this bot (") || !strings.Contains(got, ")]\n> "+first+" ") || strings.Count(got, "word899") != 1 {
			t.Errorf("the model got: %s", got)
		}
		c.rest()
		c.Telegram.Say(anna, anna, "make a file")
		c.Await("the file", func() bool { m := c.last(anna); return m.File != nil || c.Count(anna, "ready") == 2 })
		c.rest()
		for _, m := range c.Telegram.Messages(anna) {
			if m.File != nil {
				c.Telegram.Say(anna, anna, "what is in it?", answering(c, m, anna, m.File.Name))
			}
		}
		testrun.Eventually(t, "the file is answered", func() bool { return c.asked("what is in it?") != "" })
		if got = c.asked("what is in it?"); !strings.Contains(got, "> [file: tides.txt,") || strings.Contains(got, "from another conversation") {
			t.Errorf("the model got: %s", got)
		}
		c.rest()
		c.Close()
	})
}

// Texts of a job's run that are not delivered appear in no call to Telegram: NO_REPLY, failed
// attempts and a cancelled run.
func TestUndeliveredTextsOfJobsReachNoChat(t *testing.T) {
	for name, drafts := range map[string]bool{"drafts": true, "edits": false} {
		t.Run(name, func(t *testing.T) {
			c := openChatroom(t, "", "    allow: [7]\n    groups: [-100500]\n    members: any\n    activation: always\n", testtelegram.Config{Drafts: drafts})
			hidden := []string{"NO_REPLY", "Half of an attempt", "Text of a cancelled run"}
			c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
				last := call.Last()
				switch {
				case strings.Contains(last, "work without an answer"):
					return testmodel.Reply{Pieces: []string{"NO_", "REPLY"}, CloseAfter: 2 * time.Second}
				case strings.Contains(last, "work that is cancelled"):
					return testmodel.Reply{Pieces: []string{"Text of a cancelled run", " which is long"}, Hang: true}
				case strings.Contains(last, "work that fails"):
					if c.Model.Count(func(other testmodel.Call) bool { return other.Last() == last }) <= 2 {
						return testmodel.Reply{Pieces: []string{"Half of an attempt", " and more"}, StreamError: "server_error"}
					}
				}
				return testmodel.Reply{Pieces: []string{"Whole answer"}}
			})
			c.Start()
			c.Await("the first poll", c.Telegram.Polling)
			for _, to := range []string{"7", "-100500"} {
				for _, work := range []string{"without an answer", "that is cancelled", "that fails"} {
					job := strings.ReplaceAll(work, " ", "-") + to
					c.must("cron", "add", "--name", job, "--every", "24h", "--message", "work "+work+" "+to, "--deliver", "telegram:"+to)
					c.must("cron", "run", job)
				}
			}
			o := OpenOracle(t, c.Gateway, "")
			c.Await("the whole answers", func() bool { return c.Count(anna, "Whole answer") == 1 && c.Count(forum, "Whole answer") == 1 })
			testrun.Eventually(t, "the runs to be cancelled are under way", func() bool {
				return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'running'") == 2
			})
			for _, to := range []string{"7", "-100500"} {
				c.must("cron", "cancel", "that-is-cancelled"+to)
			}
			c.rest()
			if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE suppressed_by = 'no-reply'"); n != 2 {
				t.Errorf("%d runs have no answer", n)
			}
			for _, call := range c.Telegram.Calls("") {
				for _, text := range hidden {
					if strings.Contains(fmt.Sprint(call.Params), text) {
						t.Errorf("%s has %q: %v", call.Method, text, call.Params)
					}
				}
				if call.Method == "sendChatAction" || call.Method == "sendMessageDraft" {
					t.Errorf("%s was called: %v", call.Method, call.Params)
				}
			}
			c.Close()
		})
	}
}

// The process is killed around the deliveries of jobs, again and again: each text of which at least
// a part arrived, or may have, is one entry of the conversation at its address, and nothing else
// is.
func TestKillsAroundDeliveriesEnterEachTextOnce(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		kills := testrun.Size(5, 200)
		c := openChatroom(t, database, "    allow: [7, 8]\n", testtelegram.Config{})
		long := strings.Repeat("All parts come once. ", 250)
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.Contains(call.Last(), "long") {
				return testmodel.Reply{Pieces: []string{fmt.Sprint("answer ", call.Number, ": ", long)}}
			}
			return testmodel.Reply{Pieces: []string{fmt.Sprint("answer ", call.Number)}}
		})
		c.Start()
		c.Await("the first poll", c.Telegram.Polling)
		jobs := map[string][]string{"a": {"telegram:7"}, "b": {"telegram:8", "--session", "session:reports"}, "long": {"telegram:8"}, "gone": {"telegram:99"}}
		often := map[string]string{"a": "1s"} // so that a kill waits for the start of the gateway and not for a job
		for name, to := range jobs {
			c.must(append([]string{"cron", "add", "--name", name, "--every", cmp.Or(often[name], "3s"), "--message", "work of " + name, "--deliver"}, to...)...)
		}
		texts := func() int { // each once, however often it was sent
			seen := map[string]bool{}
			for _, chat := range []int64{7, 8} {
				for _, text := range c.Telegram.Texts(chat) {
					seen[text[:min(len(text), 12)]] = true
				}
			}
			return len(seen)
		}
		from := time.Now()
		for i := range kills {
			before := texts()
			if i%2 == 0 {
				c.Telegram.Break("sendMessage", testtelegram.Fault{After: true, Hang: true})
			}
			c.Await(fmt.Sprintf("delivery %d", i), func() bool { return texts() > before })
			c.Restart()
		}
		took := time.Since(from)
		for name := range jobs {
			c.must("cron", "pause", name)
		}
		o := OpenOracle(t, c.Gateway, database)
		wait := func() int {
			return o.Count("SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')") + o.Count("SELECT count(*) FROM inbox WHERE state NOT IN ('done', 'dead')")
		}
		for left := wait(); left > 0; left = wait() { // a chat takes one text a second, and two kills more jobs
			c.Await(fmt.Sprintf("fewer than %d wait", left), func() bool { return wait() < left })
		}
		c.rest()
		arrived := o.Count("SELECT count(*) FROM outbox WHERE origin <> '' AND channel LIKE 'telegram:%' AND (state = 'delivered' OR EXISTS (SELECT 1 FROM sent s WHERE s.outgoing_id = outbox.id) OR maybe_sent = true)")
		entries := o.Count("SELECT count(*) FROM transcript WHERE origin <> '' AND session_key LIKE 'agent:main:telegram:%'")
		lost := o.Count(`SELECT count(*) FROM outbox o WHERE origin <> '' AND state = 'delivered' AND channel LIKE 'telegram:%'
			AND NOT EXISTS (SELECT 1 FROM transcript t WHERE t.reply_id = o.id)`)
		without := o.Count(`SELECT count(*) FROM transcript t WHERE t.origin <> '' AND t.session_key LIKE 'agent:main:telegram:%'
			AND NOT EXISTS (SELECT 1 FROM sent s WHERE s.outgoing_id = t.reply_id)
			AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = t.reply_id AND (o.maybe_sent = true OR o.state = 'delivered'))`) // notices that were joined share a message
		if entries != arrived || lost > 0 || without > 0 || arrived < kills/3 {
			t.Errorf("%d entries of %d texts that arrived; %d delivered texts have none, %d entries show none", entries, arrived, lost, without)
		}
		t.Logf("%d kills, %.1f s each: %d texts arrived, %d entries, %d sent again", kills, took.Seconds()/float64(kills), arrived, entries, o.Count("SELECT count(*) FROM outbox WHERE maybe_sent = true AND state = 'delivered'"))
		c.Close()
	})
}
