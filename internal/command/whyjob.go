package command

import (
	"cmp"
	"context"
	"strings"

	"laneway/internal/chat"
)

const whyUsage = "write /cron why and the number or the name of a job, then the time of the slot, such as /cron why 1 9:00 or /cron why digest yesterday 9:00"

// whyJob explains a slot. The time is at the end of the arguments, in at most three words; the part before it names the job. Without a time
// it explains the newest slot.
func whyJob(ctx context.Context, a Actions, c Call, text string) (Answer, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Answer{}, chat.Errorf(chat.CodeInvalid, "%s", whyUsage)
	}
	var refused error
	for n := min(3, len(words)-1); n >= 0; n-- {
		job, note, err := findJob(ctx, a, c, strings.Join(words[:len(words)-n], " "))
		if err != nil || note != "" { // more words follow the number: they belong to the time
			refused = cmp.Or(refused, err)
			continue
		}
		x, err := a.ExplainJob(ctx, c, job.ID, strings.Join(words[len(words)-n:], " "))
		if err != nil {
			return Answer{}, inChatWords(err)
		}
		return Answer{Text: x.Sentence()}, nil
	}
	return Answer{}, refused
}
