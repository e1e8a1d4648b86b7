package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"laneway/internal/chat"
)

// plain makes text of another person safe for a terminal: control and bidirectional characters are shown as escapes; tabs and newlines are
// kept.
func plain(s string) string {
	return chat.Escaped(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t")
}

// oneLine puts a sentence that contains foreign text on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(plain(s)), " ") }

// cell formats text of another person for one field of a table, at most width characters.
func cell(s string, width int) string {
	line := []rune(oneLine(s))
	if len(line) > width {
		return string(line[:width-1]) + "…"
	}
	if len(line) == 0 {
		return "-"
	}
	return string(line)
}

// cell formats text of another person for one field of a list: cut for the width of a terminal, complete for a program or a file.
func (env *environment) cell(s string, width int) string {
	if !env.toTerminal {
		width = max(width, len(s)+1)
	}
	return cell(s, width)
}

// printJSON writes v with the member names of the protocol, indented, with one newline at the end.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// table writes rows with aligned columns; the first row is the heading.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("writing a table: %w", err)
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

// ago formats the age of a time in milliseconds since 1970, with the unit that a person would use; "-" for 0.
func ago(now time.Time, ms int64) string {
	if ms == 0 {
		return "-"
	}
	return short(now.Sub(time.UnixMilli(ms))) + " ago"
}

// count formats a number of things whose plural ends with s.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// short formats a duration with one unit.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
