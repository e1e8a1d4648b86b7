package schedule

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// checkAccepted checks the properties of all accepted input.
func checkAccepted(t *testing.T, s Schedule, now time.Time) {
	t.Helper()
	again, err := Compile(s.Spec())
	if err != nil || again.Spec() != s.Spec() {
		t.Fatalf("the stored form %+v compiles to %+v, %v", s.Spec(), again.Spec(), err)
	}
	if s.Spec().Signature() != again.Spec().Signature() {
		t.Fatalf("two signatures: %q and %q", s.Spec().Signature(), again.Spec().Signature())
	}
	from := now
	for range 5 {
		f, ok := s.Next(from)
		if !ok {
			return
		}
		if !f.Slot.After(from) || s.Count(from, f.Slot) != 1 {
			t.Fatalf("%+v: Next(%s) = %s, Count = %d", s.Spec(), from, f.Slot, s.Count(from, f.Slot))
		}
		from = f.Slot
	}
}

func checkRefused(t *testing.T, err error) {
	t.Helper()
	if !utf8.ValidString(err.Error()) || len(err.Error()) > 512 || strings.ContainsAny(err.Error(), "\x00\n\r\x1b") {
		t.Fatalf("message %q is not fit for a person", err)
	}
}

func FuzzExpression(f *testing.F) {
	for _, seed := range append(oracleExpressions(), "@daily", "0 0 * * 5#6", "*/0 * * * *", "0 0 30 2 *", "1-2-3 * * * *", "0 9 * JAN-MAR FRI#1,5L", "٣ * * * *") {
		f.Add(seed, "Europe/Berlin")
	}
	f.Add("0 0 * * *", "America/Santiago")
	f.Add("0 0 * * *", "+05:30")
	f.Add("0 0 * * *", "Local")
	f.Fuzz(func(t *testing.T, expr, tz string) {
		s, err := Check(cronSpec(expr, tz), noon, Rules{})
		if err != nil {
			checkRefused(t, err)
			return
		}
		checkAccepted(t, s, noon)
	})
}

func FuzzAt(f *testing.F) {
	f.Add("2027-03-02T08:00:00Z", "")
	f.Add("2027-03-28T02:30", "Europe/Berlin")
	f.Add("2011-12-30", "Pacific/Apia")
	f.Add("1803895200000", "+05:30")
	f.Add("9999-12-31T23:59:59.999999999", "-14:00")
	f.Fuzz(func(t *testing.T, text, tz string) {
		got, err := ParseAt(text, tz)
		if err != nil {
			checkRefused(t, err)
			return
		}
		if got.After(latestAt()) || got.Nanosecond()%1e6 != 0 || got.Location() != time.UTC {
			t.Fatalf("ParseAt(%q, %q) = %s", text, tz, got)
		}
		if again, err := ParseAt(ISO(got), ""); got.Year() >= 0 && (err != nil || !again.Equal(got)) {
			t.Fatalf("ParseAt(%q) = %s, %v, want %s", ISO(got), again, err, got)
		}
	})
}

func FuzzWhen(f *testing.F) {
	for _, seed := range []string{
		"in 2h30m x", "15:00 call Anna", "tomorrow 9:00", "every 30m x", "every monday 8:30 x", "2027-03-02 15:00 x",
		`"0 9 * * 1-5" briefing`, "0 0 9 * * 1-5 x", "@daily x", "in 20 minutes", "3pm", "every weekday at 7am x", "\"", "in ", "0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, rest, err := ParseWhen(text, noon, "Europe/Berlin")
		if err != nil {
			checkRefused(t, err)
			return
		}
		if !strings.HasSuffix(strings.TrimSpace(text), rest) {
			t.Fatalf("ParseWhen(%q) leaves %q", text, rest)
		}
		s, err := Check(spec, noon, Rules{})
		if err != nil {
			checkRefused(t, err)
			return
		}
		checkAccepted(t, s, noon)
	})
}
