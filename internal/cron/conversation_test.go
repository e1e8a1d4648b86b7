package cron_test

import (
	"testing"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// TestAJobBelongsToTheConversationOfItsAnswers covers the ways in which jobs and conversations are connected.
func TestAJobBelongsToTheConversationOfItsAnswers(t *testing.T) {
	t.Parallel()
	announce := func(channel, to, thread string) cron.Delivery {
		return cron.Delivery{Mode: cron.DeliverAnnounce, Channel: channel, To: to, Thread: thread}
	}
	for name, tt := range map[string]struct {
		job  cron.Job
		key  string
		want bool
	}{
		"topic":                {cron.Job{Session: cron.Isolated, Delivery: announce("telegram:666", "-5", "3")}, "telegram:group:-5:topic:3", true},
		"another topic":        {cron.Job{Session: cron.Isolated, Delivery: announce("telegram:666", "-5", "4")}, "telegram:group:-5:topic:3", false},
		"the group of a topic": {cron.Job{Session: cron.Isolated, Delivery: announce("telegram", "-5", "3")}, "telegram:group:-5", false},
		"private chat":         {cron.Job{Session: cron.Isolated, Delivery: announce("telegram:666", "7", "")}, "telegram:group:-5", false},
		"web session":          {cron.Job{Session: cron.Isolated, Delivery: announce("web", "agent:main:notes", "")}, "notes", true},
		"another web session":  {cron.Job{Session: cron.Isolated, Delivery: announce("web", "agent:main:notes", "")}, "diary", false},
		"named session":        {cron.Job{Session: cron.NamedSession + "agent:main:notes"}, "notes", true},
		"main session":         {cron.Job{Session: cron.Main}, "main", true},
		"the last route":       {cron.Job{Session: cron.Isolated, Delivery: announce("last", "", "")}, "main", true},
		"no delivery":          {cron.Job{Session: cron.Isolated}, "main", false},
		"webhook":              {cron.Job{Session: cron.Isolated, Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: "https://a.example"}}, "main", false},
	} {
		tt.job.Agent = "main"
		key, err := chat.ParseSessionKey(tt.key, "main")
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.job.In(key); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}
