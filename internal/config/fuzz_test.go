package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzParse searches for input that makes the parser panic, that is accepted although it is not valid, or that is refused without a reason.
func FuzzParse(f *testing.F) {
	for _, dir := range []string{"bad", "good"} {
		files, err := filepath.Glob("testdata/" + dir + "/*.yaml")
		if err != nil || len(files) == 0 {
			f.Fatal("no seeds", err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("agents: &x {main: *x}"))
	f.Add([]byte("? [a, b]\n: c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := parse("fuzz.yaml", text)
		if err == nil {
			if again := cfg.check().err(); again != nil {
				t.Fatalf("accepted and not valid: %v", again)
			}
			return
		}
		var faults FaultsError
		if !errors.As(err, &faults) || len(faults) == 0 {
			t.Fatalf("refused without faults: %v", err)
		}
		for _, fault := range faults {
			if fault.Message == "" {
				t.Fatalf("a fault without a sentence: %+v", fault)
			}
		}
	})
}

func FuzzShortAgent(f *testing.F) {
	f.Add("openai:m@http://127.0.0.1:1/v1")
	f.Add("command:a b c")
	f.Fuzz(func(t *testing.T, short string) {
		a, err := ParseShortAgent(short)
		if err == nil && a.Runner == "" {
			t.Fatalf("%q was taken without a runner", short)
		}
	})
}
