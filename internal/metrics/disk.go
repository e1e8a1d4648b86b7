package metrics

import "github.com/prometheus/client_golang/prometheus"

// diskCollector reads the free space of the disks at each scrape.
type diskCollector struct{ source func() map[string]uint64 }

// Describe implements prometheus.Collector: a disk whose free space cannot be read has no series.
func (diskCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c diskCollector) Collect(ch chan<- prometheus.Metric) {
	free := prometheus.NewDesc("laneway_disk_free_bytes", "Free space of the disk, by what lies on it.", []string{"disk"}, nil)
	for disk, bytes := range c.source() {
		ch <- prometheus.MustNewConstMetric(free, prometheus.GaugeValue, float64(bytes), disk)
	}
}
