// Package top shows how a gateway is doing right now: `xebec top`.
//
// A [Snapshot] is what one poll of the admin API returned. [Compare] turns two snapshots into a [Frame]: the rows for
// functions and models, with rates computed from the counters that grew between the polls. A frame is the JSON of
// `xebec top -o json`; [Frame.Text] prints it as tables; [Live] shows it on a terminal, with keys to sort, filter and
// scroll.
//
// # What it promises
//
// To people: a live view has exactly as many lines as the screen, and no line is wider. Columns that do not fit are
// left out, the least important first; rows that do not fit are counted. Names are data: control characters in them are
// shown as dots. When a poll fails, the last figures stay and the view says why they are stale, because gateways get
// restarted.
//
// To scripts: a figure that is unknown is absent from the JSON. Nothing was polled before, or the counter started over
// in a new process, or there was nothing to measure.
//
// # What it never does
//
// Compare and everything that draws are pure: they are told the time, and the transcripts in testdata run them. Only
// [Watch] and [Live] wait. The package opens no connection; its caller passes a function that reads the admin API.
//
// # Where to read next
//
// frame.go computes the figures, table.go has the columns, view.go the keys, render.go the layout, live.go the loops.
package top
