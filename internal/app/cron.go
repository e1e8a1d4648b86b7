package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/command"
	"laneway/internal/channel/webhook"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/cron/service"
	"laneway/internal/gateway/jobs"
	"laneway/internal/history"
)

// cronConfig returns the operator's settings of jobs. Jobs fire in processes with the role cron.
func (p *Process) cronConfig(posts *webhook.Channel) (service.Config, error) {
	c := p.cfg.Cron
	out := service.Config{
		Fires: slices.Contains(p.cfg.Roles, config.RoleCron), Enabled: c.Enabled,
		Rules:           schedule.Rules{MinInterval: time.Duration(c.MinInterval), DefaultTZ: c.Timezone},
		UserMinInterval: time.Duration(c.UserMinInterval), MaxJobs: c.MaxJobs, MaxJobsOfUser: offIsNegative(c.MaxJobsPerOwner),
		MaxRunsPerDay: c.MaxRunsPerDay, Retention: time.Duration(c.Retention), RetentionRuns: c.RetentionRuns, MessageRetention: time.Duration(p.cfg.Retention),
		HostPayload: hostPayload(p.cfg, p.opts.LookupEnv, p.log), CheckWebhook: posts.Check, WebhookBody: jobs.WebhookBody, Observer: p.metrics.Cron(),
	}
	if out.RollUpAgent = p.cfg.History.SummaryAgent; out.RollUpAgent != "" {
		zone, err := schedule.LoadZone(c.Timezone)
		if err != nil {
			return out, fmt.Errorf("reading the zone of the gateway: %w", err)
		}
		out.RollUp = history.NewRollup(history.RollupConfig{Store: p.store, Zone: zone, Log: p.log}).Run
	}
	for _, kind := range c.Payloads {
		out.Payloads = append(out.Payloads, cron.PayloadKind(kind))
	}
	return out, nil
}

// openWebhooks returns the channel for jobs that report to a URL. It always exists, and is idle without such a job.
func openWebhooks(cfg config.Config) *webhook.Channel {
	return webhook.New(webhook.Config{
		AllowedHosts: cfg.WebhookAllowedHosts, Secret: cfg.Cron.WebhookSecret.Reveal(), Token: cfg.Cron.WebhookToken.Reveal(),
	})
}

// hostPayload returns the runner of jobs that run a program on this host; nil when the operator allows none.
func hostPayload(cfg config.Config, lookup func(string) (string, bool), log *slog.Logger) service.HostPayload {
	if len(cfg.Cron.Payloads) == 0 {
		return nil
	}
	return func(job cron.Job) (agent.Runner, string, error) {
		if !slices.Contains(cfg.Cron.Payloads, string(job.Payload.Kind)) {
			return nil, "", chat.Errorf(chat.CodeInvalid, "the payload kind %s is disabled on this gateway", job.Payload.Kind)
		}
		c, err := programOf(job, cfg.Cron.ScriptInterpreter)
		if err != nil {
			return nil, "", err
		}
		runner, err := command.New(c, lookup, log.With("job_id", job.ID))
		if err != nil {
			return nil, "", chat.Errorf(chat.CodeInvalid, "the payload of the job cannot be run: %s", err)
		}
		return runner, job.Payload.Text, nil
	}
}

// programOf returns the program of a job: its own, or the interpreter that reads the script from its standard input. The gateway never
// selects a shell.
func programOf(job cron.Job, interpreter string) (command.Config, error) {
	if job.Payload.Kind == cron.PayloadScript {
		if interpreter == "" {
			return command.Config{}, chat.Errorf(chat.CodeInvalid, "no interpreter for scripts is configured; set LANEWAY_CRON_SCRIPT_INTERPRETER")
		}
		return command.Config{Argv: strings.Fields(interpreter), Input: command.InputText, Output: command.OutputText}, nil
	}
	var in struct {
		Argv []string          `json:"argv"`
		Cwd  string            `json:"cwd"`
		Env  map[string]string `json:"env"`
	}
	if err := json.Unmarshal(job.Payload.Options, &in); err != nil {
		return command.Config{}, chat.Errorf(chat.CodeInvalid, "the payload of the job cannot be read: %s", err)
	}
	return command.Config{Argv: in.Argv, Dir: in.Cwd, Env: in.Env, Input: command.InputText, Output: command.OutputText}, nil
}
