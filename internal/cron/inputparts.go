package cron

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/words"
)

// setSchedule reads a schedule. Zone, rules of daylight saving and jitter stay when the kind stays
// the same and they are not given.
func setSchedule(b Border, j *Job, raw json.RawMessage, all Members) error {
	var in struct {
		Kind      schedule.Kind `json:"kind"`
		At        *string       `json:"at"`
		AtMs      *int64        `json:"atMs"`
		EveryMs   int64         `json:"everyMs"`
		AnchorMs  *int64        `json:"anchorMs"`
		Expr      string        `json:"expr"`
		TZ        *string       `json:"tz"`
		StaggerMs *int64        `json:"staggerMs"`
	}
	if err := readInto("schedule", raw, &in); err != nil {
		return err
	}
	if in.Kind == "on-exit" || in.Kind == "stream" {
		return Unsupported("schedule.kind", "the schedule kind "+string(in.Kind))
	}
	old := j.Schedule
	s := schedule.Spec{Kind: in.Kind}
	tz := ""
	if in.TZ != nil {
		tz = *in.TZ
		if _, err := schedule.LoadZone(tz); err != nil { // even if the kind does not use it: an unknown zone is a mistake of the caller
			return err
		}
	} else if old.Kind == in.Kind {
		tz = old.TZ
	}
	switch in.Kind {
	case schedule.KindAt:
		var err error
		if s.At, err = b.readAt(in.At, in.AtMs, tz); err != nil {
			return err
		}
	case schedule.KindEvery:
		s.EveryMs, s.AnchorMs = in.EveryMs, b.Now.UnixMilli()
		if old.Kind == schedule.KindEvery && old.EveryMs == in.EveryMs {
			s.AnchorMs = old.AnchorMs
		}
		if in.AnchorMs != nil {
			s.AnchorMs = *in.AnchorMs
		}
	case schedule.KindCron:
		s.Expr, s.TZ = in.Expr, cmp.Or(tz, b.Rules.DefaultTZ, "UTC")
		if old.Kind == schedule.KindCron {
			s.Gap, s.Fold = old.Gap, old.Fold
		}
	}
	if old.Kind != in.Kind {
		j.JitterMs = 0
	}
	if j.ID == "" || (old.Kind != in.Kind && all["deleteAfterRun"] == nil) {
		j.DeleteAfter = in.Kind == schedule.KindAt
	}
	if in.StaggerMs != nil {
		var other int64
		if raw, both := all["jitterMs"]; both && json.Unmarshal(raw, &other) == nil && !isNull(raw) && other != *in.StaggerMs {
			return refuse("schedule.staggerMs and jitterMs are one value; give one of them")
		}
		j.JitterMs = *in.StaggerMs
	}
	j.Schedule = s
	return nil
}

func setSession(b Border, j *Job, raw json.RawMessage, all Members) error {
	var target string
	if err := readInto("sessionTarget", raw, &target); err != nil {
		return err
	}
	if target == "current" {
		key := ""
		if raw, given := all["sessionKey"]; given {
			if err := readInto("sessionKey", raw, &key); err != nil {
				return err
			}
		}
		if key == "" {
			return refuse("sessionTarget current needs a sessionKey")
		}
		target = NamedSession + key
	}
	if name, ok := strings.CutPrefix(target, NamedSession); ok {
		key, err := chat.ParseSessionKey(name, j.Agent)
		if err != nil {
			return refuse("at /sessionTarget: %s", err)
		}
		if !b.Agent(key.Agent) {
			return b.unknownAgent("sessionTarget", key.Agent)
		}
		j.Session = NamedSession + key.String()
		return nil
	}
	if target != Isolated && target != Main {
		return refuse("sessionTarget %s is not one of main, isolated, current and session:<key>", schedule.Excerpt(target))
	}
	j.Session = target
	return nil
}

// setPayload reads a payload: merged when the kind is equal or absent, replaced otherwise.
func setPayload(b Border, j *Job, raw json.RawMessage, all Members) error {
	var in map[string]json.RawMessage
	if err := readInto("payload", raw, &in); err != nil {
		return err
	}
	kind := j.Payload.Kind
	if raw, given := in["kind"]; given {
		if err := readInto("payload/kind", raw, &kind); err != nil {
			return err
		}
		delete(in, "kind")
	}
	merged := map[string]json.RawMessage{}
	if kind == j.Payload.Kind && len(j.Payload.Options) > 0 {
		if err := json.Unmarshal(j.Payload.Options, &merged); err != nil {
			return refuse("the stored payload cannot be read; give all of it")
		}
	}
	main, allowed, err := b.payloadMembers(kind)
	if err != nil {
		return err
	}
	p := Payload{Kind: kind}
	if kind == j.Payload.Kind {
		p.Text = j.Payload.Text
	}
	for name, value := range in {
		switch {
		case name == main:
			if err := readInto("payload/"+name, value, &p.Text); err != nil {
				return err
			}
		case name == "timeoutSeconds":
			if err := setTimeout(j, value, all); err != nil {
				return err
			}
		case name == "allowUnsafeExternalContent":
			if string(value) == "true" {
				return Unsupported("payload.allowUnsafeExternalContent", "payload.allowUnsafeExternalContent")
			}
		case !strings.Contains(allowed, " "+name+" "):
			return refuse("at /payload: unexpected property '%s'%s", chat.Cut(name, 64), words.Meant(name, append(strings.Fields(allowed), main, "kind", "timeoutSeconds")))
		case isNull(value):
			delete(merged, name)
		default:
			merged[name] = value
		}
	}
	if len(merged) > 0 {
		if p.Options, err = json.Marshal(merged); err != nil {
			return refuse("at /payload: %s", err)
		}
	}
	j.Payload = p
	return nil
}

func setTimeout(j *Job, value json.RawMessage, all Members) error {
	var n, other int64
	if err := readInto("payload/timeoutSeconds", value, &n); err != nil {
		return err
	}
	if raw, both := all["timeoutSeconds"]; both && json.Unmarshal(raw, &other) == nil && other != n {
		return refuse("payload.timeoutSeconds and timeoutSeconds are one value; give one of them")
	}
	j.Timeout = seconds(n)
	return nil
}

// payloadMembers are the member with the text and the names of the others.
func (b Border) payloadMembers(kind PayloadKind) (main, others string, err error) {
	switch kind {
	case PayloadAgentTurn:
		return "message", " model fallbacks thinking lightContext toolsAllow toolsAllowIsDefault ", nil
	case PayloadSystemEvent:
		return "text", " toolsAllow toolsAllowIsDefault ", nil
	case PayloadCommand, PayloadScript:
		if !b.Payload(kind) {
			return "", "", chat.Errorf(chat.CodeInvalid, "payload.kind %s is disabled on this gateway; enable it with LANEWAY_CRON_PAYLOADS=%s", kind, kind).
				With("code", "CRON_PAYLOAD_DISABLED").With("kind", string(kind)).With("enableWith", "LANEWAY_CRON_PAYLOADS="+string(kind))
		}
		if kind == PayloadScript {
			return "script", " ", nil
		}
		return "input", " argv cwd env noOutputTimeoutSeconds outputMaxBytes ", nil
	case "heartbeat", "skillCollectionReview":
		return "", "", Unsupported("payload.kind", "the payload kind "+string(kind))
	}
	return "", "", refuse("payload.kind %s is not known; the kinds are agentTurn, systemEvent, command and script", schedule.Excerpt(string(kind)))
}

// deliveryIn is a delivery on the wire.
type deliveryIn struct {
	Mode       *DeliveryMode   `json:"mode"`
	Channel    *string         `json:"channel"`
	To         *string         `json:"to"`
	Thread     json.RawMessage `json:"threadId"`
	Account    *string         `json:"accountId"`
	BestEffort *bool           `json:"bestEffort"`
	Urgent     *bool           `json:"urgent"`
	Failure    json.RawMessage `json:"failureDestination"`
	Completion json.RawMessage `json:"completionDestination"`
}

func setDelivery(b Border, j *Job, raw json.RawMessage, _ Members) error {
	if isNull(raw) {
		j.Delivery = Delivery{Mode: DeliverNone}
		return nil
	}
	var in deliveryIn
	if err := readInto("delivery", raw, &in); err != nil {
		return err
	}
	return b.mergeDelivery("delivery", &j.Delivery, in)
}

func (b Border) mergeDelivery(field string, d *Delivery, in deliveryIn) error {
	if in.Mode != nil && *in.Mode != d.Mode {
		*d = Delivery{Options: d.Options}
	}
	d.leave(in)
	d.take(in)
	if err := b.setDestinations(field, d, in); err != nil {
		return err
	}
	return b.checkDelivery(field, d)
}

// unknownChannel refuses a channel and lists the existing ones.
func (b Border) unknownChannel(field, name string) error {
	known := append(slices.Clone(b.Channels), "web", "last")
	return chat.Errorf(chat.CodeInvalid, "there is no channel %s; an answer goes to CHANNEL:CHAT, such as telegram:4711, to web:SESSION or to last, and the channels are %s%s",
		schedule.Excerpt(name), strings.Join(known[:len(known)-1], ", "), words.Meant(name, known)).
		With("code", "CRON_UNSUPPORTED").With("field", field)
}

func (b Border) checkDelivery(field string, d *Delivery) error {
	switch d.Mode {
	case DeliverNone:
		return nil
	case DeliverAnnounce:
		named := d.Channel != "" && d.Channel != "last" && d.Channel != "web"
		switch {
		case named && !b.Channel(d.Channel):
			return b.unknownChannel(field+".channel", d.Channel)
		case named && d.To == "":
			return refuse("%s.channel: %s needs the id of a chat", field, d.Channel)
		case d.Channel == "web":
			return b.checkSession(field, d)
		case named && chat.ChannelKind(d.Channel) == "telegram":
			return checkNumbers(field, d)
		}
		return nil
	case DeliverWebhook:
		u, err := url.Parse(d.To)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil {
			return refuse("%s.to must be an http or https URL without a user name", field)
		}
		if b.Webhook != nil {
			if err := b.Webhook(d.To); err != nil {
				return refuse("%s.to: %s", field, err)
			}
		}
		return nil
	}
	return refuse("%s.mode %s is not one of none, announce and webhook", field, schedule.Excerpt(string(d.Mode)))
}

// checkNumbers refuses an address of Telegram that cannot exist: chats and topics are numbers
// there.
func checkNumbers(field string, d *Delivery) error {
	if n, err := strconv.ParseInt(d.To, 10, 64); err != nil || n == 0 {
		return refuseAt(field+".channel", "%s is not the id of a chat of %s; write its number, such as %s:4711", schedule.Excerpt(d.To), d.Channel, d.Channel)
	}
	if n, err := strconv.ParseUint(d.Thread, 10, 31); d.Thread != "" && (err != nil || n == 0) {
		return refuseAt(field+".threadId", "%s is not the id of a topic; write its number, such as %s:%s:7", schedule.Excerpt(d.Thread), d.Channel, d.To)
	}
	return nil
}

// checkSession refuses a delivery to the web without a session. The first delivery creates a
// missing session; its agent must exist.
func (b Border) checkSession(field string, d *Delivery) error {
	if d.Thread != "" {
		return refuse("%s.threadId: a session has no threads; give the whole session key as the chat", field)
	}
	if d.To == "" {
		return nil
	}
	key, err := chat.ParseSessionKey(d.To, b.DefaultAgent)
	if err != nil {
		return refuse("%s.channel: web needs a session key: %s", field, err)
	}
	if !b.Agent(key.Agent) {
		return b.unknownAgent(field+".to", key.Agent)
	}
	return nil
}

func setAlert(b Border, j *Job, raw json.RawMessage, _ Members) error {
	switch strings.TrimSpace(string(raw)) {
	case "null":
		j.Alert = Alert{}
		return nil
	case "false":
		j.Alert = Alert{Off: true}
		return nil
	}
	var in struct {
		After          *int          `json:"after"`
		CooldownMs     *int64        `json:"cooldownMs"`
		IncludeSkipped *bool         `json:"includeSkipped"`
		Channel        *string       `json:"channel"`
		To             *string       `json:"to"`
		Account        *string       `json:"accountId"`
		Mode           *DeliveryMode `json:"mode"`
	}
	if err := readInto("failureAlert", raw, &in); err != nil {
		return err
	}
	j.Alert.Off = false
	if in.After != nil {
		if *in.After < 1 {
			return refuse("failureAlert.after must be at least 1")
		}
		j.Alert.After = *in.After
	}
	if in.CooldownMs != nil {
		j.Alert.Cooldown = max(1, units(*in.CooldownMs, time.Millisecond))
	}
	if in.IncludeSkipped != nil {
		j.Alert.IncludeSkipped = *in.IncludeSkipped
	}
	if in.Mode == nil && in.Channel == nil && in.To == nil {
		return nil
	}
	mode := DeliverAnnounce
	if in.Mode == nil {
		in.Mode = &mode
	}
	return b.mergeDelivery("failureAlert", &j.Alert.Delivery, deliveryIn{Mode: in.Mode, Channel: in.Channel, To: in.To, Account: in.Account})
}

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

// Failure is where failures are reported instead of the target of the answer; false when no such
// destination exists.
func (d Delivery) Failure() (Delivery, bool) { return d.destination(d.further().Failure) }

// Completion is a webhook that receives the finished event of every run that started; false when
// none exists.
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
	if in.Urgent != nil {
		d.Urgent = *in.Urgent
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
