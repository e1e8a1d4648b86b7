package command

import (
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// runTimezone shows or chooses the zone in which a person writes and reads times.
func runTimezone(ctx context.Context, a Actions, c Call) (string, error) {
	switch {
	case c.Args == "":
		return shownZone(ctx, a, c)
	case strings.EqualFold(c.Args, "default"):
		if err := a.SetZone(ctx, c, ""); err != nil {
			return "", err
		}
		return shownZone(ctx, a, c)
	}
	loc, err := schedule.LoadZone(c.Args)
	if err != nil {
		return "", chat.Errorf(chat.CodeInvalid, "I do not know the time zone %s; write a name such as Europe/Berlin, or an offset such as +02:00", chat.Cut(c.Args, 40))
	}
	if err := a.SetZone(ctx, c, loc.String()); err != nil {
		return "", err
	}
	return shownZone(ctx, a, c)
}

// shownZone returns the current zone and the time in it, so that a person sees whether it is right.
func shownZone(ctx context.Context, a Actions, c Call) (string, error) {
	chosen, err := a.Zone(ctx, c)
	if err != nil {
		return "", err
	}
	now, zone, err := a.Clock(ctx, c)
	if err != nil {
		return "", err
	}
	text := "Your time zone is " + zone
	if chosen == "" {
		text += ", the gateway's; choose another with /timezone Europe/Berlin"
	}
	return text + ". It is " + ShownTime(now, zone) + " there.", nil
}
