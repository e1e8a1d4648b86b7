package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/command"
	"laneway/internal/channel"
	"laneway/internal/channel/telegram"
	"laneway/internal/channel/webhook"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/cron/service"
	"laneway/internal/files"
	"laneway/internal/gateway/jobs"
	"laneway/internal/history"
	"laneway/internal/retry"
)

const (
	// attachmentsDir, in the data directory, has the files that people send to the bots and that
	// agents make for people.
	attachmentsDir = "attachments"
	// webhookPath is the prefix of the paths to which Telegram delivers for an account.
	webhookPath = "/telegram/webhook/"
	// A channel that returns unexpectedly is restarted, with increasing delays.
	minRevive, maxRevive = time.Second, time.Minute
)

// openChannels creates the configured channels. They are given their receiver in Run. A process
// without the role channels has no channels.
func (p *Process) openChannels(commands []chat.CommandInfo) error {
	p.webhooks = map[string]http.Handler{}
	bots := p.cfg.Channels.Telegram.Bots()
	if len(bots) == 0 || !slices.Contains(p.cfg.Roles, config.RoleChannels) {
		return nil
	}
	deps := telegram.Deps{Records: p.store, Files: p.files.Root(), Commands: commands, Metrics: telegram.NewMetrics(p.metrics.Registry()), Logger: p.log, Proxy: proxyOf}
	for _, bot := range bots {
		c, err := telegram.New(p.botConfig(bot), deps)
		if err != nil {
			return fmt.Errorf("channels.telegram, account %s: %w", bot.Account, err)
		}
		if slices.ContainsFunc(p.channels, func(other channel.Channel) bool { return other.Name() == c.Name() }) {
			return fmt.Errorf("channels.telegram: account %s has the token of another account; each bot can be there once", bot.Account)
		}
		p.channels = append(p.channels, c)
		p.webhooks[webhookPath+bot.Account] = c.WebhookHandler()
	}
	return nil
}

// openFiles opens the directory for attachments. Every process needs it, because any may run a turn
// that makes files.
func (p *Process) openFiles() (err error) {
	if p.files, err = files.Open(filepath.Join(p.cfg.Data, attachmentsDir)); err != nil {
		return err
	}
	p.onClose("attachments", func(context.Context) error { return p.files.Close() })
	return nil
}

func (p *Process) botConfig(bot config.Telegram) telegram.Config {
	agent := cmp.Or(bot.Agent, p.cfg.DefaultAgent)
	return telegram.Config{
		Token: bot.Token.Reveal(), Account: bot.Account, Mode: bot.Mode, APIURL: bot.APIURL, FilesDir: bot.FilesDir, WebhookURL: bot.WebhookURL, WebhookSecret: bot.WebhookSecret.Reveal(),
		Access: bot.Access, Allow: numbers(bot.Allow), Groups: numbers(bot.Groups), Members: bot.Members, Activation: bot.Activation,
		GroupStop: bot.GroupStop, Agent: agent, PollTimeout: time.Duration(bot.PollTimeout), MaxAttachment: int64(bot.MaxAttachment),
		UserRate: offIsNegative(p.cfg.Limits.ChatUser), UserFileBytes: offIsNegative(p.cfg.Limits.ChatUserBytes),
	}
}

func numbers(ids []config.ID) []int64 {
	out := make([]int64, 0, len(ids))
	for _, id := range ids {
		out = append(out, int64(id))
	}
	return out
}

// startChannels runs the channels until the returned function is called, which waits until they
// have returned.
func (p *Process) startChannels(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, c := range p.channels {
		running.Go(func() { p.runChannel(ctx, c) })
	}
	return func() { cancel(); running.Wait() }
}

// runChannel runs a channel until ctx is done. No failure of a channel ends the process: a channel
// that returns or panics is restarted; cron and other channels are not affected.
func (p *Process) runChannel(ctx context.Context, c channel.Channel) {
	policy := retry.Policy{Base: minRevive, Max: maxRevive}
	for attempt := 1; ; attempt++ {
		began := time.Now()
		err := guarded(ctx, c, p.dispatch)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 2*maxRevive { // it worked, so its next failure counts as the first
			attempt = 1
		}
		wait := policy.Wait(attempt)
		p.log.ErrorContext(ctx, "a channel ended; restarting it", "channel", c.Name(), "in", wait.String(), "err", err)
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// panicError is a panic of a channel, with its stack.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

var errEnded = errors.New("it returned without a reason")

func guarded(ctx context.Context, c channel.Channel, receiver channel.Receiver) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	if err := c.Run(ctx, receiver); err != nil {
		return err
	}
	return errEnded
}

// cronConfig returns the operator's settings of jobs. Jobs fire in processes with the role cron.
func (p *Process) cronConfig(posts *webhook.Channel) (service.Config, error) {
	c := p.cfg.Cron
	out := service.Config{
		Fires: slices.Contains(p.cfg.Roles, config.RoleCron), Enabled: c.Enabled,
		Rules:           schedule.Rules{MinInterval: time.Duration(c.MinInterval), DefaultTZ: c.Timezone},
		UserMinInterval: time.Duration(c.UserMinInterval), MaxJobs: c.MaxJobs, MaxJobsOfUser: offIsNegative(c.MaxJobsPerOwner),
		MaxRunsPerDay: c.MaxRunsPerDay, Retention: time.Duration(c.Retention), RetentionRuns: c.RetentionRuns, MessageRetention: time.Duration(p.cfg.Retention),
		HostPayload: hostPayload(p.cfg, p.opts.LookupEnv, p.log), CheckWebhook: posts.Check, WebhookBody: jobs.WebhookBody,
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

// openWebhooks returns the channel for jobs that report to a URL. It always exists, and is idle
// without such a job.
func openWebhooks(cfg config.Config) *webhook.Channel {
	return webhook.New(webhook.Config{
		AllowedHosts: cfg.WebhookAllowedHosts, Secret: cfg.Cron.WebhookSecret.Reveal(), Token: cfg.Cron.WebhookToken.Reveal(),
	})
}

// hostPayload returns the runner of jobs that run a program on this host; nil when the operator
// allows none.
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

// programOf returns the program of a job: its own, or the interpreter that reads the script from
// its standard input. The gateway never selects a shell.
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
