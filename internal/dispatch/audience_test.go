package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// alone is a person in the private chat with the bot.
func alone(id string) func(*chat.Message) {
	return func(m *chat.Message) {
		member(id)(m)
		m.Content.Options.ReplyTo.ChatID = id
	}
}

// The test requests sessions and their texts in every way in which a turn can answer in a group: the turn itself, a sub-turn, another
// agent, a background task, and a job.
func TestNoWayOfAGroupReadsThePrivateChatsOfItsMember(t *testing.T) {
	const (
		private = "agent:main:asker:direct:7"
		list    = `sessions {\"action\":\"list\"}`
		read    = `sessions {\"action\":\"history\",\"session\":\"` + private + `\"}`
		jobs    = `cron {\"action\":\"list\"}`
		search  = `history_search {\"query\":\"tulip\"}`
	)
	inBubble(t, func(t *testing.T) {
		h := openCron(t, newStore(t), withTeam)
		defer h.close()
		h.end(h.send(private, "the password is tulip", alone("7")))
		h.end(h.send(private, remindTea, alone("7")))
		ways := map[string]string{
			"sub-turn": `spawn {"wait":true,"task":"%"}`, "another agent": `delegate {"agent":"coder","task":"%"}`, "deep": `spawn {"wait":true,"task":"delegate {\"agent\":\"coder\",\"task\":\"@\"}"}`,
		}
		for _, call := range []string{list, read, jobs, search} {
			plain := strings.ReplaceAll(call, `\"`, `"`)
			got := map[string]string{"itself": h.end(h.send(groupOfAsker, plain, member("7"))).Text}
			for way, text := range ways {
				text = strings.ReplaceAll(strings.ReplaceAll(text, "%", call), "@", strings.ReplaceAll(strings.ReplaceAll(call, `\`, `\\\`), `"`, `"`))
				got[way] = h.end(h.send(groupOfAsker, text, member("7"))).Text
			}
			h.end(h.send(groupOfAsker, `spawn {"task":"`+call+`"}`, member("7")))
			h.put(once("j", plain, time.Second), func(j *cron.Job) {
				j.Owner, j.Principal = "asker:7", "asker:7"
				j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "asker", To: "5"}
			})
			time.Sleep(time.Minute)
			for way, text := range got {
				if strings.TrimSpace(text) == "" || strings.Contains(text, "there is no argument") || strings.Contains(text, "failed") {
					t.Errorf("%s by %s: no result: %q", plain, way, text)
				}
			}
		}
		shown := strings.Join(h.asker.texts("5"), "\n")
		for _, secret := range []string{"tulip is", "password", private + ":", "tea"} {
			if strings.Contains(shown, secret) {
				t.Errorf("the group reads %q:\n%s", secret, shown)
			}
		}
		want(t, "answers that list the group", strings.Count(shown, groupOfAsker+":") >= 5, true)
		if own := h.end(h.send(private, strings.ReplaceAll(list+"\n"+read, `\"`, `"`), alone("7"))).Text; !strings.Contains(own, private+":") || !strings.Contains(own, "the password is tulip") {
			t.Errorf("the person alone reads %q", own)
		}
		want(t, "questions of the group and its sub-turns", h.questionsAsked() > 0, true)
	})
}

// The person allows one call. The button has no effect for another member.
func TestAPersonShowsAGroupWhatIsTheirs(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.end(h.send("agent:main:asker:direct:7", "the password is tulip", alone("7")))
		e := h.end(h.send(groupOfAsker, `sessions {"action":"history","session":"agent:main:asker:direct:7"}`, member("7")))
		if !strings.Contains(e.Text, "is asked whether this may be done, because it was asked for where everyone in this group (asker 5) can read the answer") {
			t.Errorf("the model gets %q", e.Text)
		}
		choice := h.asked(0)
		question := ""
		for _, text := range h.asker.texts("5") {
			if strings.Contains(text, "wants to do this for you") {
				question = text
			}
		}
		if choice.For != "7" || !strings.Contains(question, "This shows what is yours alone: everyone in this group (asker 5) will see the result.") {
			t.Errorf("asked %s: %q", choice.For, question)
		}
		allow := choice.Rows[0][0].Text
		if e := h.end(h.send(groupOfAsker, allow, member("8"))); strings.Contains(e.Text, "tulip") || !strings.Contains(e.Text, "no open question") {
			t.Errorf("another member: %q", e.Text)
		}
		if e := h.end(h.send(groupOfAsker, allow, member("7"))); !strings.Contains(e.Text, "the password is tulip") {
			t.Errorf("the person: %q", e.Text)
		}
	}, withTeam)
}

// Two credentials use one session of the web channel. For the one that does not own it, only this session is shown.
func TestASessionOfAnotherPrincipalIsSharedWithIt(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		bobs := func(m *chat.Message) { m.Principal = "bob" }
		h.end(h.send("agent:main:diary", "dear diary", bobs))
		h.end(h.send("agent:main:team", "hello"))
		const list = `sessions {"action":"list"}`
		if e := h.end(h.send("agent:main:team", list, bobs)); strings.Contains(e.Text, "diary") || !strings.Contains(e.Text, "agent:main:team:") {
			t.Errorf("in the session of another: %q", e.Text)
		}
		if e := h.end(h.send("agent:main:diary", list, bobs)); !strings.Contains(e.Text, "agent:main:diary:") {
			t.Errorf("in the own session: %q", e.Text)
		}
		if e := h.end(h.send("agent:main:team", `history_search {"query":"dear"}`, bobs)); strings.Contains(e.Text, "diary") {
			t.Errorf("a search in the session of another: %q", e.Text)
		}
		h.put(once("j", list, time.Second), func(j *cron.Job) {
			j.Owner, j.Principal = "bob", "bob"
			j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: "agent:main:team"}
		})
		time.Sleep(time.Minute)
		key, err := chat.ParseSessionKey("agent:main:team", "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := h.st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if last := tr.Entries[len(tr.Entries)-1].Text; !strings.Contains(last, "no sessions") {
			t.Errorf("a job that answers in the session of another: %q", last)
		}
	}, withTeam)
}
