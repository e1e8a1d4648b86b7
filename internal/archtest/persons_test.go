package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// quoted are texts that the product sends or prints, or that another system defines, with a word of [persons] in them. They are the only such uses outside of the
// packages that list the words. A text that no file has any more leaves the list.
func quoted() []string {
	return []string{
		"trusts everybody", "everybody may talk to this bot", "for somebody else", // sentences for an operator, and the answer to a press of a button
		"nobody with the number %d was let in",
		`Who: "nobody"`,                                   // the audit log, for a request without a credential
		"user nobody", `"postgres", "nobody"`, "`nobody`", // an account of the operating system
	}
}

// personWords finds the words of [persons] in a text, as parts of names too, quoted texts left out.
func personWords(text string) (found []string) {
	for _, q := range quoted() {
		text = strings.ReplaceAll(text, q, "")
	}
	for _, name := range letters.FindAllString(text, -1) {
		for _, w := range wordsOf(name) {
			if persons.MatchString(w) {
				found = append(found, w)
			}
		}
	}
	return found
}

// writtenFiles are the Go files of the module, those of tests included, and the pages for people.
func writtenFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "archtest" || path == "../../cmd/structure"):
			return fs.SkipDir
		case !d.IsDir() && (filepath.Ext(path) == ".go" || filepath.Ext(path) == ".md" && d.Name() != "CHANGELOG.md"):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestTextsNameTheRoleOfAPerson looks at all texts of the repository: names, comments and messages, of tests too.
func TestTextsNameTheRoleOfAPerson(t *testing.T) {
	t.Parallel()
	paths, used := writtenFiles(t), map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, q := range quoted() {
				used[q] = used[q] || strings.Contains(line, q)
			}
			for _, w := range personWords(line) {
				t.Errorf("%s:%d: name the client, the principal, the process or the person in place of %q", path, i+1, w)
			}
		}
	}
	if len(paths) < 1_000 {
		t.Errorf("%d files were read; that is not the whole repository", len(paths))
	}
	for _, q := range quoted() {
		if !used[q] {
			t.Errorf("no file has the text %q any more; take it off the list", q)
		}
	}
}

func TestWordsForPersonsAreFound(t *testing.T) {
	t.Parallel()
	const text = "// Somebody's row; http.NoBody, `nobody` and trusts everybody\nfunc TestNobodyIsLetIn(maxStrangersPerAddress, of_anybody int) // Whoever"
	if got, want := personWords(text), []string{"somebody's", "nobody", "strangers", "anybody", "whoever"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
