package cron

import (
	"encoding/json"
	"slices"
	"strings"

	"laneway/internal/cron/schedule"
)

// destinations are the further destinations of a delivery, as stored in [Delivery.Options].
type destinations struct {
	Failure    json.RawMessage `json:"failureDestination,omitempty"`
	Completion json.RawMessage `json:"completionDestination,omitempty"`
}

func (d Delivery) further() destinations {
	var out destinations
	if len(d.Options) > 0 && json.Unmarshal(d.Options, &out) != nil {
		return destinations{} // the border wrote it; a damaged row has no destinations
	}
	return out
}

// Failure is where failures are reported instead of the target of the answer; false when no such destination exists.
func (d Delivery) Failure() (Delivery, bool) { return d.destination(d.further().Failure) }

// Completion is a webhook that receives the finished event of every run that started; false when none exists.
func (d Delivery) Completion() (Delivery, bool) { return d.destination(d.further().Completion) }

func (Delivery) destination(raw json.RawMessage) (Delivery, bool) {
	var in deliveryIn
	if len(raw) == 0 || json.Unmarshal(raw, &in) != nil {
		return Delivery{}, false
	}
	out := Delivery{Mode: DeliverAnnounce}
	out.take(in)
	return out, true
}

// leave clears the fields that belong to the channel and the chat that in replaces.
func (d *Delivery) leave(in deliveryIn) {
	if in.Channel != nil && *in.Channel != d.Channel {
		d.To, d.Account, d.Thread = "", "", ""
	}
	if in.To != nil && *in.To != d.To || in.Thread != nil && isNull(in.Thread) {
		d.Thread = ""
	}
}

// take copies the given fields.
func (d *Delivery) take(in deliveryIn) {
	if in.Mode != nil {
		d.Mode = *in.Mode
	}
	for _, m := range []struct{ to, from *string }{{&d.Channel, in.Channel}, {&d.To, in.To}, {&d.Account, in.Account}} {
		if m.from != nil {
			*m.to = *m.from
		}
	}
	if in.BestEffort != nil {
		d.BestEffort = *in.BestEffort
	}
	if len(in.Thread) > 0 && !isNull(in.Thread) {
		d.Thread = strings.Trim(string(in.Thread), `"`)
	}
}

// setDestinations merges the destinations of a delivery: absent = unchanged, null = removed.
func (b Border) setDestinations(field string, d *Delivery, in deliveryIn) error {
	all := d.further()
	for _, x := range []struct {
		name  string
		given json.RawMessage
		at    *json.RawMessage
		kinds []DeliveryMode
	}{
		{"failureDestination", in.Failure, &all.Failure, []DeliveryMode{DeliverAnnounce, DeliverWebhook}},
		{"completionDestination", in.Completion, &all.Completion, []DeliveryMode{DeliverWebhook}},
	} {
		switch {
		case x.given == nil:
		case isNull(x.given):
			*x.at = nil
		default:
			if err := b.checkDestination(field+"."+x.name, x.given, x.kinds); err != nil {
				return err
			}
			*x.at = x.given
		}
	}
	if d.Options = nil; all.Failure == nil && all.Completion == nil {
		return nil
	}
	var err error
	if d.Options, err = json.Marshal(all); err != nil {
		return refuse("at /%s: %s", field, err)
	}
	return nil
}

func (b Border) checkDestination(field string, raw json.RawMessage, kinds []DeliveryMode) error {
	var in deliveryIn
	if err := readInto(field, raw, &in); err != nil {
		return err
	}
	if in.Failure != nil || in.Completion != nil {
		return refuse("%s cannot have destinations of its own", field)
	}
	d := Delivery{Mode: kinds[0]}
	d.take(in)
	if !slices.Contains(kinds, d.Mode) {
		return refuse("%s.mode %s is not known there", field, schedule.Excerpt(string(d.Mode)))
	}
	return b.checkDelivery(field, &d)
}
