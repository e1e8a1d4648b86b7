package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// revealers are the files that may take the text out of a secret, each with its reason. They pass it only to the code that needs it: a
// comparison, a request header, a database driver, the log handler that replaces it.
func revealers() map[string]string {
	return map[string]string{
		"internal/gateway/hook/hook.go":  "checks signatures",
		"internal/config/databaseurl.go": "reads the address of the database and shows it without its password",
		"internal/config/secretfile.go":  "writes a generated token into its file",
		"internal/config/strength.go":    "counts characters",
		"internal/config/preflight.go":   "counts characters",
		"internal/cli/token.go":          "shows a new secret to the person who made it",
		"internal/cli/dashboard.go":      "writes the link into the page that only the user reads, or prints it on request",
		"internal/cli/logger.go":         "hides secrets in the log",
		"internal/cli/mcp.go":            "sends the credential to the gateway",
		"internal/tool/external/link.go": "sends the token of a server to its address",
	}
}

// mayReveal reports whether the purpose of a file is to pass secrets on: the process gives each part its own, a runner sends its key to its
// provider, and the client its credential to the gateway.
func mayReveal(path string) bool {
	return strings.HasPrefix(path, "internal/app/") || strings.HasPrefix(path, "internal/agent/") || path == "internal/cli/dial.go"
}

func TestSecretsAreRevealedInKnownPlacesOnly(t *testing.T) {
	t.Parallel()
	known := revealers()
	var seen []string
	for _, p := range list(t, "./...") {
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			relative := path[strings.LastIndex(path, "/"+relativeDir(p))+1:]
			if !callsReveal(t, path) || mayReveal(relative) {
				continue
			}
			seen = append(seen, relative)
			if known[relative] == "" {
				t.Errorf("%s calls Reveal and is not on the list", relative)
			}
		}
	}
	for path := range known {
		if !slices.Contains(seen, path) {
			t.Errorf("%s is on the list and does not call Reveal", path)
		}
	}
}

func relativeDir(p goPackage) string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func callsReveal(t *testing.T, path string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Reveal" {
				found = true
			}
		}
		return !found
	})
	return found
}
