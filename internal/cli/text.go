package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/words"
)

// plain makes text of another person safe for a terminal: control and bidirectional characters are
// shown as escapes; tabs and newlines are kept.
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

// cell formats text of another person for one field of a list: cut for the width of a terminal,
// complete for a program or a file.
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

// table writes rows with aligned columns; the first row is the heading. On a terminal no line is
// longer than its width.
func (env *environment) table(rows [][]string) error {
	rows, hidden := fitted(rows, env.width)
	t := tabwriter.NewWriter(env.stdout, 0, 0, columnGap, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return fmt.Errorf("writing a table: %w", err)
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	if len(hidden) > 0 {
		env.note("the terminal is too narrow for " + strings.Join(hidden, ", ") + "; make it wider, or use --json")
	}
	return nil
}

const (
	columnGap = 2
	// narrowest is the width below which a column is hidden rather than wrapped.
	narrowest = 9
	// idEnds is how many characters of both ends of an id are kept where it does not fit.
	idEnds = 6
)

// fitted changes rows so that no line is longer than width, 0 = no limit: ids are shortened, then
// the widest cells are wrapped at words, then columns are hidden from the right.
func fitted(rows [][]string, width int) (lines [][]string, hidden []string) {
	if width <= 0 || len(rows) == 0 || total(widthsOf(rows)) <= width {
		return rows, nil
	}
	heading := rows[0]
	isID := func(n int) bool { return n < len(heading) && (heading[n] == "ID" || heading[n] == "RUN") }
	rows = slices.Clone(rows)
	for i, row := range rows {
		rows[i] = slices.Clone(row)
		for n := range row {
			if i > 0 && isID(n) {
				rows[i][n] = shortID(row[n])
			}
		}
	}
	widths := widthsOf(rows)
	least := slices.Clone(widths)
	for n, w := range widths {
		if !isID(n) { // an id in two lines cannot be pasted
			least[n] = min(w, max(narrowest, len(heading[n])))
		}
	}
	shown := len(least)
	for shown > 1 && total(least[:shown]) > width {
		shown--
	}
	hidden, widths = heading[shown:], widths[:shown]
	for total(widths) > width {
		widest := 0
		for n, w := range widths {
			if w-least[n] > widths[widest]-least[widest] {
				widest = n
			}
		}
		if widths[widest] <= least[widest] {
			break // one column that is wider than the terminal
		}
		widths[widest]--
	}
	for _, row := range rows {
		lines = append(lines, wrappedRow(row, widths)...)
	}
	return lines, hidden
}

// wrappedRow is a row as lines whose cells have at most the given widths.
func wrappedRow(row []string, widths []int) (lines [][]string) {
	for n, w := range widths {
		if n >= len(row) {
			break
		}
		for i, part := range wrapped(row[n], w) {
			if i == len(lines) {
				lines = append(lines, make([]string, len(widths)))
			}
			lines[i][n] = part
		}
	}
	return lines
}

// wrapped splits a text at spaces into lines of at most width characters; a longer word is split,
// too.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		runes := []rune(word)
		if line != "" && utf8.RuneCountInString(line)+1+len(runes) > width {
			lines, line = append(lines, line), ""
		}
		for len(runes) > width {
			lines, runes = append(lines, string(runes[:width])), runes[width:]
		}
		line = strings.TrimSpace(line + " " + string(runes))
	}
	return append(lines, line)
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for n := range min(len(row), len(widths)) {
			widths[n] = max(widths[n], utf8.RuneCountInString(row[n]))
		}
	}
	return widths
}

// total is the length of a line with such columns.
func total(widths []int) int {
	n := columnGap * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

// shortID shortens an id for a narrow terminal; [wholeID] finds the whole one.
func shortID(id string) string {
	if runes := []rune(id); len(runes) > 2*idEnds+1 {
		return string(runes[:idEnds]) + "…" + string(runes[len(runes)-idEnds:])
	}
	return id
}

// wholeID returns the id that a shortened one stands for; any other id is returned as it is.
func wholeID(id string, list func() ([]string, error)) (string, error) {
	begin, end, short := strings.Cut(id, "…")
	if !short {
		return id, nil
	}
	ids, err := list()
	if err != nil {
		return "", err
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	ids = slices.DeleteFunc(ids, func(one string) bool { return !strings.HasPrefix(one, begin) || !strings.HasSuffix(one, end) })
	switch len(ids) {
	case 0:
		return id, nil
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("%d ids are shortened to %s; give one of them: %s", len(ids), oneLine(id), oneLine(strings.Join(ids, ", ")))
}

// dated formats an instant in a zone: the time, and the day unless it is today.
func dated(now time.Time, ms int64, tz string) string {
	if ms == 0 {
		return "-"
	}
	zone, err := schedule.LoadZone(tz)
	if err != nil { // a newer gateway may know more zones
		zone = time.UTC
	}
	at, today := time.UnixMilli(ms).In(zone), now.In(zone)
	layout := "15:04:05 MST"
	switch {
	case at.Year() != today.Year():
		layout = "Mon 2 Jan 2006 " + layout
	case at.YearDay() != today.YearDay():
		layout = "Mon 2 Jan " + layout
	}
	return at.Format(layout)
}

// ago formats the age of a time in milliseconds since 1970, with the unit that a person would use;
// "-" for 0.
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

// missing is the error for a name that does not exist: the one that was probably meant, and the
// command that lists them.
func missing(what, given, list string, names []string) error {
	return fmt.Errorf("there is no %s %s; see %s%s", what, oneLine(given), list, oneLine(words.Meant(given, names)))
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

// pageSize is the maximum number of members on one page of a list.
const pageSize = 200

// listing is a list of the gateway that is read page by page: a page is limited in bytes, too, so
// it may have fewer members than requested.
type listing struct {
	method string
	member string         // of the reply: the name of the list
	params map[string]any // of every call
	offset int            // how many members to skip
	limit  int            // how many members to read; 0 = all
}

// listed is a list as one page: the reply of the gateway with the members of all pages.
type listed struct {
	reply   map[string]json.RawMessage
	members []json.RawMessage
	next    *int // offset of the next page; nil at the end of the list
	total   string
}

// read reads pages until the limit or the end of the list.
func (l listing) read(ctx context.Context, conn gatewayConn) (out listed, err error) {
	for offset := l.offset; ; {
		page, size := maps.Clone(l.params), pageSize
		if l.limit > 0 {
			size = l.limit - len(out.members)
		}
		page["limit"], page["offset"] = size, offset
		var reply map[string]json.RawMessage
		if err := conn.Call(ctx, l.method, page, &reply); err != nil {
			return out, err
		}
		n, err := out.add(reply, l.member)
		if err != nil {
			return out, fmt.Errorf("the answer to %s cannot be read: %w", l.method, err)
		}
		if out.next == nil || n == 0 || l.limit > 0 && len(out.members) >= l.limit {
			return out, out.join(l)
		}
		offset = *out.next
	}
}

// add adds a page and returns how many members it has.
func (l *listed) add(reply map[string]json.RawMessage, member string) (n int, err error) {
	var page struct {
		NextOffset *int `json:"nextOffset"`
		Total      int  `json:"total"`
		TotalCount int  `json:"totalCount"`
		LowerBound bool `json:"totalIsLowerBound"`
	}
	whole, err := json.Marshal(reply)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(whole, &page); err != nil {
		return 0, err
	}
	var members []json.RawMessage
	if err := json.Unmarshal(reply[member], &members); err != nil {
		return 0, err
	}
	merge(reply, l.reply)
	l.reply, l.next, l.total = reply, page.NextOffset, counted(page.Total+page.TotalCount, page.LowerBound)
	l.members = append(l.members, members...)
	return len(members), nil
}

// counted returns a number of which the gateway may have counted only the first part.
func counted(n int, more bool) string {
	if more {
		return fmt.Sprintf("more than %d", n)
	}
	return strconv.Itoa(n)
}

// merge adds to the objects of a page the facts about members, by id, of the pages before it.
func merge(page, before map[string]json.RawMessage) {
	for name, raw := range before {
		var have, more map[string]json.RawMessage
		if json.Unmarshal(raw, &have) != nil || json.Unmarshal(page[name], &more) != nil {
			continue // not an object
		}
		maps.Copy(have, more)
		if whole, err := json.Marshal(have); err == nil {
			page[name] = whole
		}
	}
}

// join converts the reply of the last page to that of the whole list.
func (l *listed) join(of listing) error {
	for name, value := range map[string]any{of.member: l.members, "count": len(l.members), "offset": of.offset, "limit": max(of.limit, len(l.members))} {
		if _, has := l.reply[name]; !has {
			continue
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return err
		}
		l.reply[name] = raw
	}
	if l.members == nil {
		l.reply[of.member] = json.RawMessage("[]")
	}
	return nil
}

// into decodes the members.
func (l *listed) into(to any) error {
	raw, err := json.Marshal(l.members)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, to)
}

// more prints to standard error how to see the rest of the list.
func (l *listed) more(env *environment, what string) error {
	if l.next == nil {
		return nil
	}
	if env.quiet {
		return nil
	}
	_, err := fmt.Fprintf(env.stderr, "%d of %s %s; continue with --offset %d\n", len(l.members), l.total, what, *l.next)
	return err
}
