// Command sbom writes what is linked into a Go program as a CycloneDX document: every module with
// its version and the checksum of go.sum, and the toolchain. It reads the program itself, so that
// the document lists only what is linked. The same program produces the same bytes.
//
//	sbom -version 1.2.3 bin/laneway >laneway.cdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	version := flag.String("version", "", "version of the program")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom [-version V] PROGRAM")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *version); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// The members of a document that this command writes; see the specification of CycloneDX 1.5.
type (
	document struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"` // the name of the specification
		Name       string     `json:"name"`
		Version    string     `json:"version,omitempty"`
		URL        string     `json:"purl,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

func run(w io.Writer, path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what %s was built of: %w", path, err)
	}
	sum, err := digest(path)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	doc := document{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   metadata{component{Type: "application", Ref: name, Name: name, Version: version, Hashes: []hash{{"SHA-256", sum}}}},
		Components: []component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")},
	}
	for _, m := range info.Deps {
		used := effective(m)
		doc.Components = append(doc.Components, library(used.Path, used.Version, used.Sum))
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(doc)
}

// effective returns the module that was used in place of m.
func effective(m *debug.Module) *debug.Module {
	for m.Replace != nil {
		m = m.Replace
	}
	return m
}

func library(path, version, sum string) component {
	c := component{Type: "library", Name: path, Version: version, URL: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}
	c.Ref = c.URL
	if sum != "" {
		c.Properties = []property{{"go.sum", sum}}
	}
	return c
}

func digest(path string) (sum string, err error) {
	f, err := os.Open(path) // the program that the caller names
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
