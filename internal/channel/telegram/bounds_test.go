package telegram_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel/telegram"
	"laneway/internal/testtelegram"
)

func TestTheLargestAttachmentIsTakenToTheByte(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		const limit = 20_971_520
		b := newBot(t, func(s *setup) { s.cfg.MaxAttachment = telegram.MaxAttachment })
		whole := make([]byte, limit+1)
		b.srv.AddFile("under", whole[:limit-1])
		b.srv.AddFile("just", whole[:limit])
		b.srv.AddFile("over", whole)
		b.start()
		b.srv.Say(anna, anna, "", document("under", "under.bin", limit-1))
		b.srv.Say(anna, anna, "", document("just", "just.bin", limit))
		b.srv.Say(anna, anna, "", document("over", "over.bin", limit+1), testtelegram.With("caption", "as it says"))
		b.srv.Say(anna, anna, "", document("over", "liar.bin", limit), testtelegram.With("caption", "not as it says"))
		after(time.Minute)
		wantTexts(t, "received", b.texts(), "", "", "as it says\n[over.bin is larger than 20 MB and was left out]", "not as it says\n[liar.bin is larger than 20 MB and was left out]")
		for i, m := range b.messages()[:2] {
			if a := m.Content.Attachments; len(a) != 1 || len(b.read(a[0].Path)) != limit-1+i {
				t.Errorf("%s: %+v", []string{"one byte less", "exactly"}[i], a)
			}
		}
		if got := b.stored(); len(got) != 2 || strings.Contains(strings.Join(got, " "), "over") {
			t.Errorf("stored %q", got)
		}
		b.stop()
	})
}
