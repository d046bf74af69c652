package api

import "time"

// MeasuredStatus is the measured performance of a version: how long its batches take, how often feedback found it right, and how far its
// queries have moved from those that it was validated with. It is kept in the store, and so survives a restart. Parts that were not measured
// yet are missing.
type MeasuredStatus struct {
	// Model is "name@version".
	Model string `json:"model"`
	// Hardware is what the figures were measured on: the machine of this gateway.
	Hardware string        `json:"hardware,omitempty"`
	Latency  *KnownProfile `json:"latency,omitempty"`
	// Accuracy is of all feedback that named a query of this version, through any function.
	Accuracy *MeasuredAccuracy `json:"accuracy,omitempty"`
	Drift    *MeasuredDrift    `json:"drift,omitempty"`
	// Elsewhere has times that were measured on other hardware. Nothing is planned with them.
	Elsewhere []MeasuredElsewhere `json:"elsewhere,omitempty"`
}

// MeasuredAccuracy is what feedback has said of a version's predictions.
type MeasuredAccuracy struct {
	// Labels is how many predictions had feedback. Beyond 20,000 the older half of them fades.
	Labels uint64 `json:"labels"`
	// Accuracy is 1 − the mean loss of these predictions, from 0 to 1: of classes, the part that was right.
	Accuracy float64 `json:"accuracy"`
	// At is when feedback last came, within 30 s.
	At time.Time `json:"at"`
	// Kept: none has come since the gateway started.
	Kept bool `json:"kept,omitempty"`
}

// MeasuredDrift is a version's last drift.
type MeasuredDrift struct {
	DriftStatus
	At time.Time `json:"at"`
	// Kept: it is from before the gateway started, which has answered too few queries for another one.
	Kept bool `json:"kept,omitempty"`
}

// MeasuredElsewhere is what was measured on other hardware.
type MeasuredElsewhere struct {
	Hardware string       `json:"hardware"`
	Latency  KnownProfile `json:"latency"`
}

// SizeTime is the mean evaluation time of batches of From to To queries. Batches counts them; the mean is over about the last 256.
type SizeTime struct {
	From       int     `json:"from"`
	To         int     `json:"to"`
	Batches    uint64  `json:"batches"`
	MeanMicros float64 `json:"mean_micros"`
}
