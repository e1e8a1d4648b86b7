package cron_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

func TestDestinationsAreCheckedMergedAndRemoved(t *testing.T) {
	t.Parallel()
	border := cron.Border{
		Now: time.Now(), DefaultAgent: "main", Agent: func(string) bool { return true }, Channel: func(name string) bool { return name == "telegram" },
		Channels: []string{"telegram"},
		Webhook: func(url string) error {
			if strings.Contains(url, "localhost") {
				return errors.New("not there")
			}
			return nil
		},
	}
	apply := func(j cron.Job, delivery string) (cron.Job, error) {
		return border.Apply(j, cron.Members{
			"name": json.RawMessage(`"n"`), "schedule": json.RawMessage(`{"kind":"every","everyMs":60000}`), "sessionTarget": json.RawMessage(`"isolated"`),
			"payload": json.RawMessage(`{"kind":"agentTurn","message":"m"}`), "delivery": json.RawMessage(delivery),
		})
	}
	for _, bad := range []string{
		`{"failureDestination":{"channel":"pigeon","to":"1"}}`, `{"failureDestination":{"channel":"telegram"}}`, `{"failureDestination":{"mode":"webhook"}}`,
		`{"failureDestination":{"mode":"webhook","to":"http://localhost/x"}}`, `{"failureDestination":{"mode":"none"}}`, `{"failureDestination":7}`,
		`{"completionDestination":{"channel":"telegram","to":"1","mode":"announce"}}`, `{"completionDestination":{"mode":"webhook","to":"file:///x"}}`,
		`{"completionDestination":{"mode":"webhook","to":"https://a.example","completionDestination":{}}}`, `{"mode":"webhook","to":"http://localhost/x"}`,
	} {
		var refused *chat.Error
		if j, err := apply(cron.Job{}, bad); !errors.As(err, &refused) || refused.Code != chat.CodeInvalid {
			t.Errorf("%s: %+v, %v", bad, j.Delivery, err)
		}
	}
	j, err := apply(cron.Job{}, `{"mode":"announce","channel":"telegram","to":"1","failureDestination":{"channel":"telegram","to":"2","threadId":3},"completionDestination":{"mode":"webhook","to":"https://a.example/x"}}`)
	if err != nil {
		t.Fatal(err)
	}
	j.ID = "id"
	failure, ok := j.Delivery.Failure()
	if !ok || failure.Mode != cron.DeliverAnnounce || failure.Channel != "telegram" || failure.To != "2" || failure.Thread != "3" {
		t.Errorf("failures go to %+v, %t", failure, ok)
	}
	if done, ok := j.Delivery.Completion(); !ok || done.Mode != cron.DeliverWebhook || done.To != "https://a.example/x" {
		t.Errorf("completions go to %+v, %t", done, ok)
	}
	if j, err = apply(j, `{"mode":"none","failureDestination":null}`); err != nil {
		t.Fatal(err)
	}
	_, fails := j.Delivery.Failure()
	_, completes := j.Delivery.Completion()
	if fails || !completes || j.Delivery.To != "" {
		t.Errorf("after the change: %+v", j.Delivery)
	}
	if j, err = apply(j, `{"completionDestination":null}`); err != nil || j.Delivery.Options != nil {
		t.Errorf("after the removal: %+v, %v", j.Delivery, err)
	}
}

func TestADeliveryThatDoesNotResolveIsRefused(t *testing.T) {
	t.Parallel()
	border := cron.Border{
		Now: time.Now(), DefaultAgent: "main", Agent: func(id string) bool { return id == "main" }, Channels: []string{"telegram"},
		Channel: func(name string) bool { return name == "telegram" },
	}
	topic := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "-5", Thread: "7", Account: "a"}
	web := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: "agent:main:main"}
	for _, c := range []struct {
		old      cron.Delivery
		delivery string
		want     cron.Delivery
		refused  string
	}{
		{delivery: `{"mode":"announce","channel":"web","to":"agent:main:main"}`, want: web},
		{delivery: `{"mode":"announce","channel":"web"}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web"}},
		{delivery: `{"mode":"announce","channel":"web","to":"agent","threadId":"main:main"}`, refused: "a session has no threads"},
		{delivery: `{"mode":"announce","channel":"web","to":"agent:main"}`, refused: "delivery.channel: web needs a session key"},
		{delivery: `{"mode":"announce","channel":"web","to":"agent:gone:main"}`, refused: "there is no agent"},
		{delivery: `{"mode":"announce","channel":"telegram"}`, refused: "delivery.channel: telegram needs the id of a chat"},
		{old: topic, delivery: `{"channel":"web","to":"agent:main:main"}`, want: web},
		{old: topic, delivery: `{"channel":"web","to":"agent:gone:main"}`, refused: "there is no agent"},
		{old: topic, delivery: `{"to":"8"}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "8", Account: "a"}},
		{old: topic, delivery: `{"to":"-5"}`, want: topic},
		{old: topic, delivery: `{"bestEffort":true}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "-5", Thread: "7", Account: "a", BestEffort: true}},
		{old: topic, delivery: `{"threadId":null}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "-5", Account: "a"}},
		{old: web, delivery: `{"channel":"telegram"}`, refused: "needs the id of a chat"},
	} {
		j, err := border.Apply(cron.Job{Delivery: c.old}, cron.Members{
			"name": json.RawMessage(`"n"`), "schedule": json.RawMessage(`{"kind":"every","everyMs":60000}`), "sessionTarget": json.RawMessage(`"isolated"`),
			"payload": json.RawMessage(`{"kind":"agentTurn","message":"m"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		j.ID, j.Delivery = "id", c.old
		j, err = border.Apply(j, cron.Members{"delivery": json.RawMessage(c.delivery)})
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v changed by %s: %v, want %q in it", c.old, c.delivery, err, c.refused)
			}
		case err != nil || !reflect.DeepEqual(j.Delivery, c.want):
			t.Errorf("%+v changed by %s: %+v, %v, want %+v", c.old, c.delivery, j.Delivery, err, c.want)
		}
	}
}
