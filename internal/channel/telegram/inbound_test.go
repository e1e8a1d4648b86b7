package telegram_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

func TestMessageIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		id := b.srv.Say(group, anna, "@lane_bot hello", testtelegram.Mentioning(9), testtelegram.InTopic(10),
			testtelegram.With("from", map[string]any{"id": anna, "is_bot": false, "first_name": "An\u202ena\nERROR"}))
		b.srv.Say(group, anna, "@lane_bot hello", testtelegram.Mentioning(9), testtelegram.InTopic(20))
		b.srv.Say(group, anna, "@lane_bot hello", testtelegram.Mentioning(9), testtelegram.With("message_thread_id", 99)) // a thread of replies
		after(time.Second)
		b.srv.Say(anna, anna, "hello", testtelegram.InTopic(5))
		after(time.Second)
		got := b.messages()
		if len(got) != 4 {
			t.Fatalf("received %q", b.texts())
		}
		m := got[0]
		want := chat.Message{
			Session: chat.PeerKey("main", "telegram", "group", "-100500", "10"), ID: m.ID, Principal: "telegram:123456789:7", Scope: "operator.write", BotName: "lane_bot",
			Channel: "telegram:123456789", ExternalID: int64(id), Dedupe: "telegram:123456789/1000",
		}
		want.Content = m.Content
		if m.Session != want.Session || m.Principal != want.Principal || m.Scope != want.Scope || m.BotName != want.BotName || m.Channel != want.Channel ||
			m.ExternalID != want.ExternalID || m.Dedupe != want.Dedupe {
			t.Errorf("got %+v\nwant %+v", m, want)
		}
		if m.Content.Sender != (chat.Sender{ID: "7", Name: "AnnaERROR"}) || m.Content.Thread != "10" || m.Content.Options.ReplyTo != to(group, "10") || !m.Content.Options.Typed {
			t.Errorf("content %+v", m.Content)
		}
		for i, rest := range []string{"telegram:group:-100500:topic:10", "telegram:group:-100500:topic:20", "telegram:group:-100500", "telegram:direct:7:topic:5"} {
			if got[i].Session.Rest != rest {
				t.Errorf("session %d is %s, want %s", i, got[i].Session.Rest, rest)
			}
		}
		b.stop()
	})
}

func TestEditedMessagesBeginNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		u := b.srv.Message(anna, anna, "changed")
		b.srv.Push(map[string]any{"edited_message": u["message"]})
		b.srv.Push(map[string]any{"channel_post": u["message"]})
		after(time.Second)
		wantTexts(t, "received", b.texts())
		if left := b.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		b.stop()
	})
}

func TestForwardedTextHasNoAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Say(anna, anna, "/stop", testtelegram.With("forward_origin", map[string]any{"type": "hidden_user", "date": 1, "sender_user_name": "x"}))
		b.srv.Say(anna, anna, "/stop", testtelegram.With("forward_date", 1))
		b.srv.Say(anna, anna, "/stop")
		after(time.Second)
		got := b.messages()
		if len(got) != 3 || !got[0].Content.External || !got[1].Content.External || got[2].Content.External {
			t.Errorf("received %+v", got)
		}
		b.stop()
	})
}

func TestOddText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.PushRaw(3000, `{"update_id":3000,"message":{"message_id":1,"date":1,"chat":{"id":7,"type":"private"},"from":{"id":7,"first_name":"A"},"text":"a\u0000b\ud800c"}}`)
		b.srv.Say(anna, anna, "   ")
		b.srv.Say(anna, anna, "", testtelegram.With("new_chat_title", "x"))
		b.srv.Say(anna, anna, "", testtelegram.With("location", map[string]any{"latitude": 48.2, "longitude": 16.37}))
		b.srv.Say(anna, anna, "", testtelegram.With("sticker", map[string]any{"file_id": "s", "file_unique_id": "s", "emoji": "👍", "width": 1, "height": 1}))
		after(time.Second)
		b.srv.Say(anna, anna, "", testtelegram.With("dice", map[string]any{"emoji": "🎲", "value": 3}))
		after(5 * time.Second)
		wantTexts(t, "received", b.texts(), "ab\ufffdc", "Place: 48.200000, 16.370000", "👍")
		if got := b.srv.Texts(anna); len(got) != 1 || !strings.Contains(got[0], "can't read") {
			t.Errorf("anna reads %q", got)
		}
		b.stop()
	})
}

func photo(id string) func(map[string]any) {
	return testtelegram.With("photo", []any{
		map[string]any{"file_id": "small", "file_unique_id": "s", "width": 1, "height": 1},
		map[string]any{"file_id": id, "file_unique_id": "u" + id, "width": 9, "height": 9, "file_size": 5},
	})
}

func document(id, name string, size int) func(map[string]any) {
	return testtelegram.With("document", map[string]any{"file_id": id, "file_unique_id": "u", "file_name": name, "mime_type": "text/plain", "file_size": size})
}

func (b *bot) read(path string) string {
	b.t.Helper()
	f, err := b.files.Open(path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

// stored lists what is in the directory for attachments.
func (b *bot) stored() []string {
	b.t.Helper()
	var out []string
	err := fs.WalkDir(b.files.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func TestAlbumIsOneMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		for _, id := range []string{"a", "b", "c"} {
			b.srv.AddFile(id, []byte("photo"+id))
		}
		b.start()
		album := testtelegram.With("media_group_id", "g1")
		b.srv.Say(anna, anna, "", album, photo("a"))
		after(300 * time.Millisecond)
		b.srv.Say(anna, anna, "", album, photo("b"), testtelegram.With("caption", "/stop what are these?"))
		after(300 * time.Millisecond)
		b.srv.Say(anna, anna, "", album, photo("c"))
		b.srv.Say(anna, anna, "after the album")
		after(5 * time.Second)
		got := b.messages()
		if len(got) != 2 || len(got[0].Content.Attachments) != 3 || got[0].Content.Text != "/stop what are these?" || got[1].Content.Text != "after the album" {
			t.Fatalf("received %+v", got)
		}
		for i, a := range got[0].Content.Attachments {
			if text := b.read(a.Path); text != "photo"+string(rune('a'+i)) || a.Size != 6 || a.MIMEType != "image/jpeg" {
				t.Errorf("attachment %d: %+v holds %q", i, a, text)
			}
		}
		if left := b.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		b.stop()
	})
}

func TestNamesAreNoPaths(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.UserRate = -1 })
		b.srv.AddFile("d", []byte("text"))
		b.start()
		for _, name := range []string{
			"../../etc/passwd", `..\..\x.txt`, "/etc/passwd", `\\server\share\x.exe`, "a\x00b.txt", "%2e%2e%2fx", "..", ".", "", "con", "x.t/../xt", "\u202etxt.exe",
			strings.Repeat("long", 500) + ".txt", ".htaccess", "a.sh;rm -rf", "x.\n.txt",
		} {
			b.srv.Say(anna, anna, "", document("d", name, 4))
		}
		after(10 * time.Second)
		got := b.messages()
		if len(got) != 16 {
			t.Fatalf("received %d", len(got))
		}
		for _, m := range got {
			a := m.Content.Attachments[0]
			if strings.ContainsAny(a.Name, "/\\\x00\n\u202e") || !strings.HasPrefix(a.Path, "telegram-123456789/") || strings.Count(a.Path, "/") != 1 || strings.Contains(a.Path, "..") {
				t.Errorf("attachment %+v", a)
			}
			if b.read(a.Path) != "text" {
				t.Errorf("%s does not hold the text", a.Path)
			}
		}
		b.stop()
	})
}

func TestAttachmentsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddFile("liar", make([]byte, 2<<20)) // its declared size is small
		b.srv.AddFile("fine", []byte("text"))
		b.start()
		b.srv.Say(anna, anna, "", document("big", "big.bin", 3<<20), testtelegram.With("caption", "look"))
		b.srv.Say(anna, anna, "", document("liar", "liar.bin", 10), testtelegram.With("caption", "and this"))
		b.srv.Say(anna, anna, "", document("missing", "gone.txt", 10))
		after(20 * time.Second)
		b.srv.Break("file", testtelegram.Fault{Reset: true}, testtelegram.Fault{HTML: 502})
		b.srv.Say(anna, anna, "", document("fine", "fine.txt", 4))
		after(20 * time.Second)
		wantTexts(t, "received", b.texts(), "look\n[big.bin is larger than 1 MB and was left out]", "and this\n[liar.bin is larger than 1 MB and was left out]",
			"[gone.txt could not be fetched from Telegram]", "")
		if got := b.stored(); len(got) != 1 || !strings.HasSuffix(got[0], ".txt") {
			t.Errorf("stored %q", got)
		}
		b.stop()
	})
}

// A burst of refused files has one note, although their names differ.
func TestBurstOfRefusedFilesHasOneNote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		defer b.stop()
		for i := range 15 {
			b.srv.Say(anna, anna, "", document(fmt.Sprint("big", i), fmt.Sprintf("big%d.bin", i), 3<<20))
		}
		after(time.Minute / 2)
		if got := b.srv.Messages(anna); len(got) != 1 || !strings.Contains(got[0].Text, "Big0.bin is larger than 1 MB") {
			t.Errorf("%d notes: %+v", len(got), got)
		}
	})
}

// Whatever a person or a group sends without a limit is answered once per burst, and
// the limit of its sender is said once.
func TestBurstsOfEveryKindHaveOneAnswer(t *testing.T) {
	t.Parallel()
	say := func(text string, more func(map[string]any)) func(b *bot, place int64, i int) {
		return func(b *bot, place int64, i int) {
			b.srv.Say(place, anna, strings.ReplaceAll(text, "%d", strconv.Itoa(i)), func(m map[string]any) {
				if more != nil {
					more(m)
				}
			})
		}
	}
	with := func(name string, value any) func(map[string]any) {
		return func(m map[string]any) { m[name] = value }
	}
	push := func(kind string) func(b *bot, place int64, i int) {
		return func(b *bot, place int64, i int) {
			b.srv.Push(map[string]any{kind: b.srv.Message(place, anna, fmt.Sprint("changed ", i))})
		}
	}
	person := map[string]any{"id": 99, "is_bot": false, "first_name": "Eve"}
	for kind, c := range map[string]struct {
		send  func(b *bot, place int64, i int)
		notes int // besides the limit of the sender
	}{
		"edited messages": {push("edited_message"), 0},
		"reactions": {func(b *bot, place int64, i int) {
			b.srv.Push(map[string]any{"message_reaction": map[string]any{"chat": map[string]any{"id": place}, "message_id": i, "user": person, "new_reaction": []any{}}})
		}, 0},
		"members that join":  {say("", with("new_chat_members", []any{person})), 1},
		"unsupported kinds":  {say("", with("dice", map[string]any{"emoji": "🎲", "value": 3})), 1},
		"buttons of nothing": {func(b *bot, place int64, i int) { b.srv.Press(place, anna, 1, fmt.Sprint("nothing", i)) }, 0},
		"too many messages":  {say("@lane_bot %d", nil), 0},
		"wrong choices":      {say("/activation %d", nil), 1},
		"stops":              {say("/stop", nil), 1},
	} {
		for where, place := range map[string]int64{"private": anna, "group": group} {
			t.Run(kind+", "+where, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBot(t, nil)
					b.start()
					defer b.stop()
					for i := range 60 {
						c.send(b, place, i)
					}
					after(50 * time.Second)
					limit := func(text string) bool { return strings.HasPrefix(text, "You have reached the limit of 20 messages") }
					got := b.srv.Texts(place)
					if others := slices.DeleteFunc(slices.Clone(got), limit); len(others) > c.notes || len(got)-len(others) > 1 {
						t.Errorf("%d answers: %q", len(got), got)
					}
				})
			})
		}
	}
}

func TestFileIsFetchedOnceWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddFile("a", []byte("photo"))
		b.fail(chat.ErrStoreUnavailable, chat.ErrStoreUnavailable, chat.ErrStoreUnavailable)
		b.start()
		b.srv.Say(anna, anna, "", photo("a"))
		after(20 * time.Second)
		if n := len(b.srv.Calls("file")); n != 1 || len(b.messages()) != 1 {
			t.Errorf("%d downloads, %d messages", n, len(b.messages()))
		}
		b.stop()
	})
}

func TestRefusedMessagesGetANote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		full := chat.Errorf(chat.CodeQueueFull, "ten messages wait already; try again in a moment") // the gateway sends the notice, with the number
		long := chat.Errorf(chat.CodeInvalid, "the text is too long")
		b.fail(long, long, full)
		for _, text := range []string{"one", "two", "three", "four"} {
			b.srv.Say(anna, anna, text)
		}
		after(10 * time.Second)
		wantTexts(t, "received", b.texts(), "four")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "This was not taken: the text is too long.")
		b.stop()
	})
}

func link(offset, length int, address string) map[string]any {
	return map[string]any{"type": "text_link", "offset": offset, "length": length, "url": address}
}

func entity(kind string, offset, length int) map[string]any {
	return map[string]any{"type": kind, "offset": offset, "length": length}
}

func TestLinkedWordsKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	person := entity("text_mention", 4, 3)
	person["user"] = map[string]any{"id": 42, "is_bot": false, "first_name": "Ben"}
	marks := func(list ...any) func(map[string]any) { return testtelegram.With("entities", list) }
	for name, c := range map[string]struct {
		text string
		more func(map[string]any)
		want string
	}{
		"after an emoji":     {"📰 read the report and sum it up", marks(link(8, 10, "https://news.example/t?id=42")), "📰 read the report (https://news.example/t?id=42) and sum it up"},
		"two, one nested":    {"one two three", marks(link(0, 13, "https://a.example"), entity("bold", 4, 3), link(4, 3, "https://b.example")), "one two (https://b.example) three (https://a.example)"},
		"same place":         {"one", marks(link(0, 3, "https://a.example"), link(0, 3, "https://b.example"), link(0, 3, "https://b.example")), "one (https://a.example) (https://b.example)"},
		"space at the end":   {"read this \nnow", marks(link(5, 6, "https://a.example")), "read this (https://a.example) \nnow"},
		"the address itself": {"https://a.example", marks(link(0, 17, "https://a.example")), "https://a.example"},
		"another address":    {"https://a.example", marks(link(0, 17, "https://b.example")), "https://a.example (https://b.example)"},
		"no visible label":   {"look\u200b", marks(link(4, 1, "https://a.example")), "look\u200b (https://a.example)"},
		"person":             {"ask Ben about it", marks(person), "ask Ben (tg://user?id=42) about it"},
		"custom emoji":       {"👍 yes", marks(entity("custom_emoji", 0, 2), link(3, 3, "https://a.example")), "👍 yes (https://a.example)"},
		"inside of an emoji": {"👍 yes", marks(link(1, 3, "https://a.example"), link(-1, 2, "x:1"), link(3, 9, "x:2"), link(4, -2, "x:3")), "👍 yes"},
		"address with lines": {"x", marks(link(0, 1, "https://a.example/\nb c")), "x (https://a.example/%20b%20c)"},
		"in a command":       {"/help 15:00 read this ", marks(link(0, 5, "https://a.example"), link(12, 9, "https://b.example")), "/help 15:00 read this (https://b.example)"},
		"button": {"Ferry", testtelegram.With("reply_markup", map[string]any{"inline_keyboard": [][]any{{
			map[string]any{"text": "Timetable", "url": "https://port.example"}, map[string]any{"text": "no", "callback_data": "x"},
		}}}), "Ferry\nTimetable (https://port.example)"},
		"poll": {"", testtelegram.With("poll", map[string]any{
			"id": "1", "question": "Which?", "options": []any{map[string]any{"text": "this"}, map[string]any{"text": "that"}}, "explanation": "see here",
			"explanation_entities": []any{link(4, 4, "https://a.example")},
		}), "Poll: Which?\n- this\n- that\nsee here (https://a.example)"},
		"caption": {"", func(m map[string]any) {
			m["photo"], m["caption"], m["caption_entities"] = []any{}, "the map", []any{link(4, 3, "https://map.example")}
		}, "the map (https://map.example)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				b.srv.Say(anna, anna, c.text, c.more)
				after(2 * time.Second)
				wantTexts(t, "the agent reads", b.texts(), c.want)
				b.stop()
			})
		})
	}
}

func TestLinkedWordsOfForwardsAndAlbums(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddFile("a", []byte("photo"))
		b.srv.AddFile("b", []byte("photo"))
		b.start()
		b.srv.Say(anna, anna, "/stop here", testtelegram.With("forward_date", 1), testtelegram.With("entities", []any{link(0, 5, "https://a.example")}))
		album := testtelegram.With("media_group_id", "g1")
		for _, id := range []string{"a", "b"} {
			b.srv.Say(anna, anna, "", album, photo(id), testtelegram.With("caption", "part "+id), testtelegram.With("caption_entities", []any{link(0, 4, "https://"+id+".example")}))
		}
		mention := map[string]any{"type": "text_mention", "offset": 0, "length": 4, "user": map[string]any{"id": 123456789, "is_bot": true, "first_name": "Lane"}}
		b.srv.Say(group, anna, "Lane look", testtelegram.With("entities", []any{mention, link(5, 4, "https://c.example")}))
		after(5 * time.Second)
		got := b.messages()
		wantTexts(t, "the agent reads", slices.Sorted(slices.Values(b.texts())), "/stop (https://a.example) here", "Lane look (https://c.example)", "part (https://a.example) a\npart (https://b.example) b")
		for _, m := range got {
			if m.Content.External != strings.HasPrefix(m.Content.Text, "/stop") {
				t.Errorf("only the forwarded text is from outside: %+v", m.Content)
			}
		}
		b.stop()
	})
}

func TestAnsweredMessageReachesTheAgent(t *testing.T) {
	t.Parallel()
	message := func(from map[string]any, text string, more ...func(map[string]any)) map[string]any {
		m := map[string]any{"message_id": 15, "date": 1, "from": from, "chat": map[string]any{"id": 7, "type": "private"}}
		if text != "" {
			m["text"] = text
		}
		for _, f := range more {
			f(m)
		}
		return m
	}
	person := func(id int64, name string) map[string]any {
		return map[string]any{"id": id, "is_bot": false, "first_name": name}
	}
	lane := map[string]any{"id": 123456789, "is_bot": true, "first_name": "Lane"}
	reply := func(m map[string]any) func(map[string]any) { return testtelegram.With("reply_to_message", m) }
	both := func(list ...func(map[string]any)) func(map[string]any) {
		return func(m map[string]any) {
			for _, f := range list {
				f(m)
			}
		}
	}
	long := strings.Repeat("word ", 500)
	for name, c := range map[string]struct {
		more func(map[string]any)
		want *chat.Answered
	}{
		"none": {func(map[string]any) {}, nil},
		"ours, with a selected part": {
			both(reply(message(lane, "1. Rain\n2. Strike")), testtelegram.With("quote", map[string]any{"text": "Strike", "position": 11})),
			&chat.Answered{Author: "Lane", Ours: true, Selected: "Strike", Text: "1. Rain\n2. Strike"},
		},
		"another person": {reply(message(person(9, "Cleo"), "31 April")), &chat.Answered{Author: "Cleo", Text: "31 April", Outside: true}},
		"one's own":      {reply(message(person(anna, "Anna"), "before")), &chat.Answered{Author: "Anna", Own: true, Text: "before"}},
		"one's own, forwarded": {
			reply(message(person(anna, "Anna"), "do it", testtelegram.With("forward_origin", map[string]any{"type": "user"}))),
			&chat.Answered{Author: "Anna", Text: "do it", Outside: true},
		},
		"photo": {
			reply(message(person(9, "Cleo"), "", photo("p"), testtelegram.With("caption", "look"))),
			&chat.Answered{Author: "Cleo", Text: "[photo]\nlook", Outside: true},
		},
		"voice": {
			reply(message(lane, "", testtelegram.With("voice", map[string]any{"file_id": "v", "file_unique_id": "v", "duration": 1}))),
			&chat.Answered{Author: "Lane", Ours: true, Text: "[voice message]"},
		},
		"file": {reply(message(lane, "", document("d", "tides.txt", 1))), &chat.Answered{Author: "Lane", Ours: true, Text: "[file: tides.txt]"}},
		"linked words": {
			reply(message(person(9, "Cleo"), "the map", testtelegram.With("entities", []any{link(4, 3, "https://map.example")}))),
			&chat.Answered{Author: "Cleo", Text: "the map (https://map.example)", Outside: true},
		},
		"of another chat": {
			both(testtelegram.With("external_reply", map[string]any{"origin": map[string]any{"type": "channel", "chat": map[string]any{"id": -1, "title": "Port"}}, "photo": []any{map[string]any{"file_id": "x"}}}),
				testtelegram.With("quote", map[string]any{"text": "no ferry", "position": 0})),
			&chat.Answered{Author: "Port", Selected: "no ferry", Text: "[photo]", Outside: true},
		},
		"of a hidden person": {
			testtelegram.With("external_reply", map[string]any{"origin": map[string]any{"type": "hidden_user", "sender_user_name": "H"}}),
			&chat.Answered{Author: "H", Outside: true},
		},
		"the start of a topic": {reply(message(lane, "", testtelegram.With("forum_topic_created", map[string]any{"name": "x"}))), nil},
		"long":                 {reply(message(lane, long)), &chat.Answered{Author: "Lane", Ours: true, Text: strings.TrimSpace(long[:1995]) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				b.srv.Say(anna, anna, "is this right?", c.more)
				after(2 * time.Second)
				got := b.messages()
				if a := got[0].Content.Answered; a != nil { // for /why
					if got[0].Content.Network == "" || name == "one's own" && a.Message == "" {
						t.Errorf("no id of the network: %+v answers %+v", got[0].Content, a)
					}
					a.Message = ""
				}
				if len(got) != 1 || got[0].Content.Text != "is this right?" || !reflect.DeepEqual(got[0].Content.Answered, c.want) {
					t.Errorf("received %+v, answered %+v, want %+v", got, got[0].Content.Answered, c.want)
				}
				b.stop()
			})
		})
	}
}

// TestFilesOfOwnServerInLocalMode: a Bot API server in local mode names files by absolute paths.
func TestFilesOfOwnServerInLocalMode(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, outside := filepath.Join(base, "api"), filepath.Join(base, "outside.txt")
	for path, text := range map[string]string{filepath.Join(dir, "bot", "documents", "file_1.txt"): "tides", outside: "secret"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link.txt")), os.Symlink(dir, filepath.Join(base, "named"))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, path, want string }{
		"below the directory":      {dir, dir + "/bot/documents/file_1.txt", "tides"},
		"through a linked name":    {base + "/named", dir + "/bot/documents/file_1.txt", "tides"},
		"the linked name itself":   {base + "/named", base + "/named/bot/documents/file_1.txt", "tides"},
		"outside":                  {dir, outside, ""},
		"by dots":                  {dir, dir + "/../outside.txt", ""},
		"a link out of it":         {dir, dir + "/link.txt", ""},
		"a directory":              {dir, dir + "/bot", ""},
		"missing":                  {dir, dir + "/no.txt", ""},
		"no directory is named":    {"", dir + "/bot/documents/file_1.txt", ""},
		"the directory is missing": {base + "/none", base + "/none/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, func(s *setup) { s.cfg.FilesDir = c.dir })
				b.srv.AddLocalFile("d", c.path)
				b.start()
				b.srv.Say(anna, anna, "", document("d", "tides.txt", 5), testtelegram.With("caption", "look"))
				after(10 * time.Second)
				got := b.messages()
				if len(got) != 1 {
					t.Fatalf("received %+v", got)
				}
				switch files := got[0].Content.Attachments; {
				case c.want != "" && (len(files) != 1 || b.read(files[0].Path) != c.want):
					t.Errorf("received %+v, log %s", got[0].Content, b.log.String())
				case c.want == "" && (len(files) != 0 || !strings.Contains(b.log.String(), "files_dir")):
					t.Errorf("received %+v, log %s", got[0].Content, b.log.String())
				}
				b.stop()
			})
		})
	}
}
