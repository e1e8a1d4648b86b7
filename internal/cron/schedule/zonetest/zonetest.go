// Package zonetest writes releases of time zone rules for tests of what happens when processes have
// different ones.
package zonetest

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// Write makes a directory for the variable ZONEINFO: rules of zones by name, each as a POSIX TZ
// string such as CET-1CEST,M3.5.0,M10.5.0/3. Without a release the directory does not name one.
func Write(tb testing.TB, release string, zones map[string]string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	files := map[string][]byte{}
	for name, rule := range zones {
		files[name] = compiled(rule)
	}
	if release != "" {
		files["tzdata.zi"] = []byte("# version " + release + "\n")
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// compiled is a TZif file (RFC 9636) of version 2: UTC up to 1970, the rule after it.
func compiled(rule string) []byte {
	var out bytes.Buffer
	header := func(times, types, chars uint32) {
		out.WriteString("TZif2" + string(make([]byte, 15)))
		for _, n := range []uint32{0, 0, 0, times, types, chars} {
			_ = binary.Write(&out, binary.BigEndian, n) // a buffer takes everything
		}
	}
	header(0, 0, 0)
	header(1, 1, 4)
	out.Write(make([]byte, 8+1+6)) // one change, at 0, to the one type, which is UTC
	out.WriteString("UTC\x00\n" + rule + "\n")
	return out.Bytes()
}
