package telegram_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// Without a bound one person could fill the disk: 20 albums a minute of ten files of 20 MB each.
func TestTheFilesOfOnePersonAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 400 << 10
		b := newBot(t, func(s *setup) { s.cfg.UserFileBytes, s.cfg.Allow = 1<<20, []int64{anna, bob} })
		for n := range 5 {
			b.srv.AddFile(fmt.Sprint("f", n), make([]byte, size))
		}
		b.start()
		for n := range 4 {
			b.srv.Say(anna, anna, "", document(fmt.Sprint("f", n), fmt.Sprintf("f%d.bin", n), size), testtelegram.With("caption", fmt.Sprint("file ", n)))
		}
		b.srv.Say(bob, bob, "", document("f4", "f4.bin", size))
		after(10 * time.Second)
		left := "[%s was left out: too many files in a minute]"
		if got := strings.Join(b.texts(), "|"); strings.Count(got, "left out") != 2 || !strings.Contains(got, "file 2\n"+fmt.Sprintf(left, "f2.bin")) {
			t.Errorf("received %q", got)
		}
		if got := b.stored(); len(got) != 3 {
			t.Errorf("stored %q, want two files of one person and one of the other", got)
		}
		after(time.Minute)
		b.srv.Say(anna, anna, "", document("f2", "f2.bin", size))
		after(10 * time.Second)
		if got := b.stored(); len(got) != 4 {
			t.Errorf("stored %q after a minute, want one more", got)
		}
		b.stop()
	})
}

// A retry after a failure of the disk does not count the bytes again.
func TestAFileThatIsTriedAgainIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.UserFileBytes = 1 << 20 })
		b.srv.AddFile("v", make([]byte, 900<<10))
		if err := b.files.WriteFile("telegram-123456789", []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.srv.Say(anna, anna, "look", document("v", "x.txt", 900<<10))
		after(20 * time.Second)
		if err := b.files.Remove("telegram-123456789"); err != nil {
			t.Fatal(err)
		}
		after(20 * time.Second)
		if got := b.messages(); len(got) != 1 || len(got[0].Content.Attachments) != 1 {
			t.Errorf("received %+v", got)
		}
		b.stop()
	})
}
