package config

import (
	"strings"
	"testing"
)

// A new setting without documentation, or a changed default, fails here; make generate writes the documentation again.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	keys, err := Keys()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]Key{}
	for _, k := range keys {
		if k.Meaning == "" {
			t.Errorf("%s has no meaning", k.Path)
		}
		k.Meaning = ""
		documented[k.Path] = k
	}
	shape := Shape()
	if len(shape) != len(documented) || len(shape) < 150 {
		t.Errorf("%d keys are documented, there are %d", len(documented), len(shape))
	}
	for _, k := range shape {
		k.Struct, k.Field = "", ""
		if documented[k.Path] != k {
			t.Errorf("documented as %+v, is %+v", documented[k.Path], k)
		}
	}
}

// The documented default of each number can be given in its variable.
func TestDocumentedVariablesAreTaken(t *testing.T) {
	t.Parallel()
	for _, k := range Shape() {
		if strings.Contains(k.Path, "<") || k.Type != "number" || k.Default == "" {
			continue
		}
		loaded, err := Load(Options{LookupEnv: environ(k.Variable, k.Default, "LANEWAY_DATA", t.TempDir())})
		if err != nil {
			t.Errorf("%s=%s: %v", k.Variable, k.Default, err)
			continue
		}
		if loaded.Source(k.Path).Kind != SourceEnv {
			t.Errorf("%s is not taken from %s", k.Path, k.Variable)
		}
	}
}
