package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
)

// Telegram returns the observer of the Telegram channel.
func (m *Metrics) Telegram() TelegramObserver { return TelegramObserver{m} }

// TelegramObserver counts calls and updates of the Bot API.
type TelegramObserver struct{ m *Metrics }

// Call counts one call; method and result are from closed sets.
func (o TelegramObserver) Call(method, result string) {
	o.m.telegramCalls.WithLabelValues(method, result).Inc()
}

// Update counts one update by its result.
func (o TelegramObserver) Update(result string) { o.m.telegramUpdates.WithLabelValues(result).Inc() }

// channelCollector reads the status of the channels. The account is a name from the configuration.
type channelCollector struct {
	source func() []chat.ChannelStatus
}

// Describe implements prometheus.Collector: the series depend on the configuration.
func (*channelCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *channelCollector) Collect(ch chan<- prometheus.Metric) {
	labels := []string{"channel", "account"}
	connected := prometheus.NewDesc("laneway_channel_connected", "1 while the channel works.", labels, nil)
	age := prometheus.NewDesc("laneway_channel_last_poll_age_seconds", "How long ago the provider last answered a poll; absent before the first.", labels, nil)
	for _, s := range c.source() {
		up := 0.0
		if s.Connected {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(connected, prometheus.GaugeValue, up, s.ID, s.AccountID)
		if s.LastPollAge >= 0 {
			ch <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, s.LastPollAge.Seconds(), s.ID, s.AccountID)
		}
	}
}
