package command

import (
	"cmp"
	"context"
	"strings"

	"laneway/internal/chat"
)

const whyUsage = "write /cron why and the number or the name of a job, then the time of the slot, such as /cron why 1 9:00 or /cron why digest yesterday 9:00"

// whyJob explains a slot. The time is at the end of the arguments, in at most three words; the part before it names the job. Without a time
// it explains the newest slot. A removed job is searched for only when no job that exists has such a name: another job may have its name by now.
func whyJob(ctx context.Context, a Actions, c Call, text string) (Answer, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Answer{}, chat.Errorf(chat.CodeInvalid, "%s", whyUsage)
	}
	most := min(3, len(words)-1)
	name := func(n int) string { return strings.Join(words[:len(words)-n], " ") }
	explain := func(id string, n int) (Answer, error) {
		x, err := a.ExplainJob(ctx, c, id, strings.Join(words[len(words)-n:], " "))
		if err != nil {
			return Answer{}, inChatWords(err)
		}
		return Answer{Text: x.Sentence()}, nil
	}
	var refused error
	for n := most; n >= 0; n-- {
		job, note, err := findJob(ctx, a, c, name(n))
		if err == nil && note == "" {
			return explain(job.ID, n)
		}
		refused = cmp.Or(refused, err) // nil when more words follow a number: they belong to the time
	}
	for n := most; n >= 0; n-- {
		if id, err := a.RemovedJob(ctx, c, name(n)); err != nil {
			return Answer{}, err
		} else if id != "" {
			return explain(id, n)
		}
	}
	return Answer{}, cmp.Or(refused, error(chat.Errorf(chat.CodeInvalid, "%s", whyUsage)))
}
