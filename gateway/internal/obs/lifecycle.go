package obs

import "github.com/prometheus/client_golang/prometheus"

// LifecycleSample describes the life cycle of versions and the outcomes of what was declared.
type LifecycleSample struct {
	// Phases counts versions by phase.
	Phases map[string]int
	// Outcomes counts the outcomes of warm-up, validation and roll-outs: "validated", "rejected", "rolled_out",
	// "retreated".
	Outcomes map[string]uint64
	// Revision is the revision of the store that this gateway has.
	Revision uint64
	Arms     []ArmSample
	Drift    []DriftSample
	// Log describes the inference log; nil if there is none.
	Log *InferenceLogSample
}

// ArmSample describes one version under a traffic rule.
type ArmSample struct {
	Model, Version, Rule      string
	Share                     float64
	Queries, Failed, Feedback uint64
	LossSum                   float64
	// Same and Different are set for shadows.
	Same, Different uint64
}

// DriftSample is how far a version's served queries are from the validated ones.
type DriftSample struct {
	Model, Version string
	Input, Output  float64
}

// InferenceLogSample counts the inference log's records.
type InferenceLogSample struct {
	Records, Dropped, RawBytes, WrittenBytes uint64
}

var (
	lifePhases   = desc("model_versions", "Model versions by life-cycle phase.", "phase")
	lifeOutcomes = desc("version_outcomes_total", "Outcomes of validations and learned roll-outs: validated, rejected, rolled_out, retreated.", "outcome")
	lifeRevision = desc("store_revision", "Revision of the declarations, as this gateway has it. Gateways that share a store have the same one.")
	armShare     = desc("traffic_share", "The part of a model's queries that a traffic rule gives a version.", "model", "version", "rule")
	armQueries   = desc("traffic_queries_total", "Queries that a version answered under a traffic rule, since the rule was set.", "model", "version", "rule")
	armFailed    = desc("traffic_failed_total", "Queries under a traffic rule that had no answer.", "model", "version", "rule")
	armLoss      = desc("traffic_loss", "Losses that feedback reported for a version's answers under a traffic rule, each from 0 to 1. The rate of _sum divided by the rate of _count is the version's error rate.", "model", "version", "rule")
	armCompared  = desc("traffic_compared_total", "Answers of a shadow version, compared with the serving version's: same, different.", "model", "version", "outcome")
	driftIndex   = desc("model_drift", "Drift: population stability index of served against validated queries, the largest of the inputs and the largest of the outputs.", "model", "version", "of")
	logRecords   = desc("inference_log_records_total", "Records of the inference log.")
	logDropped   = desc("inference_log_dropped_total", "Records dropped: the disk is slow or full, or the record is too large.")
	logRaw       = desc("inference_log_raw_bytes_total", "Bytes of inference log records before compression.")
	logWritten   = desc("inference_log_written_bytes_total", "Bytes written to the inference log.")

	lifecycleDescriptors = []*prometheus.Desc{
		lifePhases, lifeOutcomes, lifeRevision, armShare, armQueries, armFailed, armLoss, armCompared, driftIndex,
		logRecords, logDropped, logRaw, logWritten,
	}
)

func (l *LifecycleSample) collect(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string), ch chan<- prometheus.Metric) {
	for phase, n := range l.Phases {
		gauge(lifePhases, float64(n), phase)
	}
	for outcome, n := range l.Outcomes {
		count(lifeOutcomes, n, outcome)
	}
	gauge(lifeRevision, float64(l.Revision))
	for _, a := range l.Arms {
		gauge(armShare, a.Share, a.Model, a.Version, a.Rule)
		count(armQueries, a.Queries, a.Model, a.Version, a.Rule)
		count(armFailed, a.Failed, a.Model, a.Version, a.Rule)
		ch <- prometheus.MustNewConstSummary(armLoss, a.Feedback, a.LossSum, nil, a.Model, a.Version, a.Rule)
		if a.Rule == "shadow" {
			count(armCompared, a.Same, a.Model, a.Version, "same")
			count(armCompared, a.Different, a.Model, a.Version, "different")
		}
	}
	for _, d := range l.Drift {
		gauge(driftIndex, d.Input, d.Model, d.Version, "input")
		gauge(driftIndex, d.Output, d.Model, d.Version, "output")
	}
	if x := l.Log; x != nil {
		count(logRecords, x.Records)
		count(logDropped, x.Dropped)
		count(logRaw, x.RawBytes)
		count(logWritten, x.WrittenBytes)
	}
}
