package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Wide rows are read as one column, a JSON array: the driver allocates the name, the type and the value of every column, which for a row of fifty
// columns was most of what the end of a run allocated. Texts share the memory of the array.

// packed is a row whose only column has all of them.
type packed struct{ scanner }

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

// Scan reads the elements of the array into dest, as Scan of a row does with columns.
func (p packed) Scan(dest ...any) error {
	var text string
	if err := p.scanner.Scan(&text); err != nil {
		return err
	}
	return array(text).Scan(dest...)
}

// array is the text of the column of a packed row.
type array string

// Scan reads the elements into dest.
func (a array) Scan(dest ...any) error {
	rest := strings.TrimPrefix(string(a), "[")
	for i, to := range dest {
		if i > 0 {
			rest = strings.TrimPrefix(rest, ",")
		}
		v, after, err := element(rest)
		if err == nil {
			err = v.into(to)
		}
		if err != nil {
			return fmt.Errorf("read column %d of a row: %w", i, err)
		}
		rest = after
	}
	if rest != "]" {
		return fmt.Errorf("a row has more than %d columns", len(dest))
	}
	return nil
}

// value is a column: a text, a whole number, or NULL.
type value struct {
	text         string
	number       int64
	isText, null bool
}

// element takes the first element off the rest of an array.
func element(s string) (v value, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		end := 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(s) {
			return v, "", errors.New("a text has no end")
		}
		v.isText, v.text = true, s[1:end]
		if strings.IndexByte(v.text, '\\') >= 0 {
			v.text, err = unescaped(v.text)
		}
		return v, s[end+1:], err
	}
	end := strings.IndexAny(s, ",]")
	if end < 0 {
		return v, "", errors.New("an array has no end")
	}
	if s[:end] == "null" {
		v.null = true
		return v, s[end:], nil
	}
	v.number, err = strconv.ParseInt(s[:end], 10, 64)
	return v, s[end:], err
}

// escapes are what stands behind a backslash for one character.
const escapes, escaped = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

// unescaped is a text without its escapes. Other ones than \u and four digits, of a control character, come in pairs or not at all; the standard
// library reads those.
func unescaped(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	for rest := s; ; {
		plain, after, more := strings.Cut(rest, `\`)
		b.WriteString(plain)
		if !more {
			return b.String(), nil
		}
		i := -1
		if after != "" {
			i = strings.IndexByte(escapes, after[0])
		}
		if i < 0 {
			var text string
			err := json.Unmarshal([]byte(`"`+s+`"`), &text)
			return text, err
		}
		b.WriteByte(escaped[i])
		rest = after[1:]
	}
}

// into stores the value, as database/sql does.
func (v value) into(to any) error {
	switch to := to.(type) {
	case *string:
		if v.isText {
			*to = v.text
			return nil
		}
	case *int64:
		if !v.isText && !v.null {
			*to = v.number
			return nil
		}
	case *int:
		if !v.isText && !v.null {
			*to = int(v.number)
			return nil
		}
	case *bool:
		if !v.isText && !v.null {
			*to = v.number != 0
			return nil
		}
	case **string:
		if *to = nil; v.isText {
			text := v.text
			*to = &text
		}
		return nil
	case **int64:
		if *to = nil; !v.null {
			number := v.number
			*to = &number
		}
		return nil
	case interface{ SetMillis(ms int64) }: // which makes no interface value of the number
		to.SetMillis(v.number)
		return nil
	case sql.Scanner:
		return to.Scan(v.plain())
	}
	if p := reflect.ValueOf(to); p.Kind() == reflect.Pointer && p.Elem().Kind() == reflect.String && v.isText {
		p.Elem().SetString(v.text)
		return nil
	}
	return fmt.Errorf("a %T cannot hold %v", to, v.plain())
}

// plain is the value as the driver returns it.
func (v value) plain() any {
	switch {
	case v.null:
		return nil
	case v.isText:
		return v.text
	default:
		return v.number
	}
}
