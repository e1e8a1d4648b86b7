package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
	"laneway/internal/outbox"
	"laneway/internal/ownership"
	"laneway/internal/retry"
	"laneway/internal/store"
	"laneway/internal/usage"
)

// endUsageTime limits how long the end of a turn, and each round of a turn without a budget, waits
// until its usage is committed.
const endUsageTime = 2 * time.Second

// newMeter creates the meter.
func (p *parts) newMeter(r prometheus.Registerer) (*usage.Meter, error) {
	cfg := p.cfg.Usage
	cfg.Metrics = r
	if cfg.Logger == nil {
		cfg.Logger = p.log
	}
	if cfg.Zone == nil && p.cfg.Cron.Rules.DefaultTZ != "" {
		zone, err := schedule.LoadZone(p.cfg.Cron.Rules.DefaultTZ)
		if err != nil {
			return nil, fmt.Errorf("reading the zone of the gateway: %w", err)
		}
		cfg.Zone = zone
	}
	return usage.New(cfg, p.store), nil
}

// spending counts what turns use, and reports budgets that are used up.
type spending struct {
	meter  *usage.Meter
	store  Store
	node   *ownership.Node
	outbox *outbox.Sender
	log    *slog.Logger
}

// of starts to count a turn, for the sender of the leading message.
func (sp *spending) of(t *turn) *usage.Turn {
	texts := t.journal.messages()
	lead := texts[len(texts)-1]
	return sp.meter.Turn(usage.Who{Principal: lead.Principal, Agent: lead.Session.Agent, Job: t.attempt.JobID()})
}

// allow checks the budgets before a round. Its error is for the person.
func (sp *spending) allow(ctx context.Context, t *turn) error {
	err := repeated(ctx, t.usage.Allow)
	sp.notify(ctx, t)
	if over, ok := errors.AsType[*usage.OverError](err); ok {
		if over.State.Kind != usage.KindTurn {
			t.over = &over.State
		}
		return agent.NewError(chat.FailBudget, over.Error(), nil)
	}
	return err
}

// settle returns when the counted usage of the turn is committed. Without a budget, the turn
// continues when that takes too long or fails; the counters are written later.
func (j *journal) settle(ctx context.Context) error {
	if j.usage.Bounded() {
		return repeated(ctx, j.usage.Settle)
	}
	short, cancel := context.WithTimeout(ctx, endUsageTime)
	defer cancel()
	if err := repeated(short, j.usage.Settle); err != nil {
		j.parts.log.WarnContext(ctx, "the usage of a round is written later than the round", "run_id", j.runID, "err", err)
	}
	return nil
}

// repeated retries an operation while the store is unavailable, until ctx is done.
func repeated(ctx context.Context, op func(context.Context) error) error {
	return retry.Do(ctx, retry.Options{Policy: retry.Policy{Base: 20 * time.Millisecond, Max: time.Second}, Retryable: store.CommitUnknown}, op)
}

// end counts a turn whose agent has returned. It is committed before the end of the turn: a turn
// whose end is lost runs again, and is charged again.
func (sp *spending) end(ctx context.Context, t *turn, whole chat.Usage) {
	if !t.asked {
		return
	}
	t.usage.End(whole, time.Since(t.began))
	if !t.usage.Asked() && !t.usage.Bounded() { // no model has answered
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endUsageTime)
	defer cancel()
	if err := repeated(ctx, t.usage.Settle); err != nil {
		sp.log.WarnContext(ctx, "the usage of a turn is written later than its end", "run_id", t.run.RunID, "err", err)
	}
	sp.notify(ctx, t)
}

// notify sends the notices about budgets that this turn has brought to a new level: one for
// each budget, level and day, in all replicas together.
func (sp *spending) notify(ctx context.Context, t *turn) {
	states := t.usage.Notices()
	if len(states) == 0 {
		return
	}
	lead := t.rows[len(t.rows)-1]
	to := lead.Content.Options.ReplyTo
	switch {
	case !to.IsZero():
	case t.attempt.Unattended():
		to = channel.WebTarget(chat.MainKey(lead.Session.Agent))
	default:
		to = channel.WebTarget(lead.Session)
	}
	rows := make([]store.Outgoing, 0, len(states))
	for _, s := range states {
		row := newNotice(lead.Session, t.run.Principal, to)
		row.RunID, row.N = "budget/"+sp.meter.Today()+"/"+string(s.Kind)+"/"+s.Name, int(s.Level())
		row.Text, row.ExpiresAt = s.Sentence(), time.Now().Add(noticeLife)
		rows = append(rows, *row)
		sp.log.WarnContext(ctx, "a budget is used", "budget", string(s.Kind), "name", s.Name, "percent", int(s.Level()), "tokens", s.Spent.Tokens, "cost", s.Spent.Cost.String())
	}
	err := sp.node.Final(ctx, "sending a notice about a budget", func(ctx context.Context) error { return sp.store.Enqueue(ctx, rows) })
	if err != nil {
		sp.log.ErrorContext(ctx, "a notice about a budget was not sent", "err", err)
	}
	sp.outbox.Wake()
}

// onceADay gives one id to the notices that a person would receive for each message until the
// budget resets: rows with the same id are sent once. The text differs from the notice that the
// budget is used up, because channels send an identical notice once.
func (sp *spending) onceADay(t *turn, rows []store.Outgoing) {
	if t.over == nil || len(rows) != 1 || rows[0].Kind != store.KindNotice {
		return
	}
	texts := t.journal.messages()
	to := rows[0].Target
	name := strings.Join([]string{
		"laneway:budget", sp.meter.Today(), string(t.over.Kind), t.over.Name, texts[len(texts)-1].Principal, to.Channel, to.ChatID, to.Thread,
	}, "\x00")
	rows[0].ID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String()
	rows[0].Text = "This was not answered. " + t.over.Sentence() + " Until then there is no further reply here."
}

// estimateRequest returns the tokens of the first request of a turn, by an estimate that errs high.
func estimateRequest(req agent.Request) int {
	n := agent.EstimateTokens(req.SystemPrompt) + agent.EstimateTokens(agent.Prompt(req))
	for _, e := range req.History {
		n += agent.EstimateEntry(e)
	}
	return n + toolTokens(req.Tools)
}

// estimateRound returns the tokens of a recorded round in each later request, and the tokens that
// its model wrote.
func estimateRound(r chat.Round) (all, output int) {
	output = agent.EstimateTokens(r.Text)
	for _, call := range r.Calls {
		output += agent.EstimateTokens(call.Name + call.Args)
	}
	all = output
	for _, result := range r.Results {
		if result != nil {
			all += agent.EstimateTokens(result.Text)
		}
	}
	return all, output
}

// counted returns the usage of a round that is to be recorded: the provider's count, or an
// estimate.
func (j *journal) counted(round chat.Round) chat.Usage {
	u := round.Usage.Clamped()
	if u.InputTokens+u.OutputTokens > 0 || j.estimate == nil {
		return u
	}
	u.InputTokens = j.estimatedInput()
	_, u.OutputTokens = estimateRound(round)
	return u
}

// estimatedInput returns the tokens of a request after the recorded rounds.
func (j *journal) estimatedInput() int {
	n := j.estimate()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.rounds {
		all, _ := estimateRound(r.Round)
		n += all
	}
	return n
}

// estimate completes the usage of a turn whose provider reports none. The rounds before the last
// request were counted when they were recorded.
func (t *turn) estimate(res *agent.Result) {
	j := t.journal
	if j.estimate == nil || res.Text == "" {
		return
	}
	before, all := j.usages()
	if res.Usage.InputTokens > before.InputTokens || res.Usage.OutputTokens > before.OutputTokens {
		return
	}
	res.Usage.InputTokens = all.InputTokens + j.estimatedInput()
	res.Usage.OutputTokens = all.OutputTokens + agent.EstimateTokens(res.Text)
}

// usages returns the sums of the recorded rounds: those of earlier attempts, and all.
func (j *journal) usages() (before, all chat.Usage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, r := range j.rounds {
		all.Add(r.Usage)
		if i < j.before {
			before = all
		}
	}
	return before, all
}

const (
	// gaugesSaved is the interval at which changed ratios are stored.
	gaugesSaved = time.Minute
	// gaugesTime limits the write at shutdown.
	gaugesTime = time.Second
	// ratioChange is the smallest change of a ratio that is stored, in thousandths.
	ratioChange = 20
)

// gauges preserves across restarts how endpoints count tokens. A replica starts with the ratios of
// other replicas; the last write wins.
type gauges struct {
	*parts

	saved map[store.TokenRatio]int // by endpoint and model; used by load, and then by run
}

// all returns the gauges of the agents; agents of one endpoint share one.
func (g *gauges) all() map[string]*agent.Gauge {
	by := map[string]*agent.Gauge{}
	for _, a := range g.agents {
		if a.Gauge != nil {
			by[a.Gauge.Endpoint()] = a.Gauge
		}
	}
	return by
}

// load sets the gauges to the stored ratios. Without them the first requests err high, so a failure
// is only a warning.
func (g *gauges) load(ctx context.Context) {
	by := g.all()
	if len(by) == 0 {
		return
	}
	list, err := g.store.TokenRatios(ctx)
	if err != nil {
		g.log.WarnContext(ctx, "how endpoints count tokens is not known; windows are used by estimates that err high", "err", err)
	}
	for _, t := range list {
		if gauge := by[t.Endpoint]; gauge != nil {
			gauge.Restore(t.Model, agent.Ratio(t.Permille)/1000)
			g.saved[store.TokenRatio{Endpoint: t.Endpoint, Model: t.Model}] = t.Permille
		}
	}
}

// run stores ratios that have changed, once a minute and at shutdown.
func (g *gauges) run(ctx context.Context) {
	t := time.NewTicker(gaugesSaved)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			g.save(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), gaugesTime)
			defer cancel()
			g.save(last)
			return
		}
	}
}

func (g *gauges) save(ctx context.Context) {
	var changed []store.TokenRatio
	for endpoint, gauge := range g.all() {
		for model, ratio := range gauge.Ratios() {
			t := store.TokenRatio{Endpoint: endpoint, Model: model}
			permille := int(1000 * ratio)
			if before, ok := g.saved[t]; ok && max(before-permille, permille-before) < ratioChange {
				continue
			}
			t.Permille = permille
			changed = append(changed, t)
		}
	}
	if len(changed) == 0 {
		return
	}
	if err := g.store.SaveTokenRatios(ctx, changed); err != nil {
		g.log.WarnContext(ctx, "how endpoints count tokens was not stored", "err", err)
		return
	}
	for _, t := range changed {
		g.saved[store.TokenRatio{Endpoint: t.Endpoint, Model: t.Model}] = t.Permille
	}
}
