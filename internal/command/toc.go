package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/chat"
)

// TocLine is the summary of a period. Session is empty when it covers all sessions.
type TocLine struct{ Period, Session, Text string }

// tocText is how many bytes of a summary /toc shows.
const tocText = 600

func tocCommand() Command {
	return Command{
		Name: "toc", Args: "[day | week | month]", Category: "session", Method: "toc.list",
		Description: "Show what was said, by day, week or month; in a group what was said here.", Run: textOnly(runToc),
	}
}

func runToc(ctx context.Context, a Actions, c Call) (string, error) {
	level := strings.ToLower(c.Args)
	switch {
	case level == "":
		level = "day"
	case !slices.Contains([]string{"day", "week", "month"}, level):
		return "", chat.Errorf(chat.CodeInvalid, "say /toc day, /toc week or /toc month")
	}
	lines, err := a.Toc(ctx, c, level)
	if err != nil {
		return "", err
	}
	if len(lines) == 0 {
		return "There are no summaries yet.", nil
	}
	var b strings.Builder
	for _, l := range lines {
		text := chat.Cut(l.Text, tocText)
		if len(text) < len(l.Text) {
			text += " …"
		}
		fmt.Fprintf(&b, "%s\n%s\n\n", strings.TrimSpace(l.Period+"  "+l.Session), text)
	}
	return strings.TrimRight(b.String(), "\n"), nil
}
