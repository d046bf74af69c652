package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

func showScheduler(p *page, answer []byte) error {
	var s api.SchedulerStatus
	if err := json.Unmarshal(answer, &s); err != nil {
		return err
	}
	planning := string(s.State)
	if s.State != api.SchedulerOff {
		planning += ", every " + micros(s.EpochMicros)
	}
	p.field(0, "Planning", planning)
	p.field(0, "Plans", fmt.Sprint(s.Epochs))
	p.field(0, "Last plan", p.since(s.PlannedAt))
	if s.Epochs > 0 {
		p.field(0, "Took", fmt.Sprintf("%s, P99 %s", micros(s.PlanMicros), micros(s.PlanP99Micros)))
	}
	p.plannedFunctions(s.Functions)
	p.plannedModels(s.Models)
	var turns [][]string
	for _, d := range s.Devices {
		for _, t := range d.Tenants {
			turns = append(turns, []string{d.Name, percent(d.Busy), t.Model, micros(t.TurnMicros), percent(t.Share)})
		}
		if len(d.Tenants) == 0 {
			turns = append(turns, []string{d.Name, percent(d.Busy), "-", "-", "-"})
		}
	}
	p.table("DEVICE\tBUSY\tMODEL\tTURN\tSHARE", turns)
	return nil
}

func (p *page) plannedFunctions(functions []api.FunctionPlanStatus) {
	var rows, candidates [][]string
	for _, f := range functions {
		budget := "-"
		if f.BudgetPerSecond > 0 {
			budget = figure(f.BudgetPerSecond)
		}
		rows = append(rows, []string{f.Name, figure(f.Weight), figure(f.QueriesPerSecond), micros(f.SLOMicros), figure(f.CostPerSecond), budget, percent(f.Refused), p.why(f.RefusedWhy)})
		for _, c := range f.Candidates {
			candidates = append(candidates, []string{f.Name, c.Model, percent(c.Evaluated), figure(c.Gain), figure(c.Cost), p.why(c.Why)})
		}
	}
	p.table("FUNCTION\tWEIGHT\tQUERIES/S\tSLO\tCOST/S\tBUDGET/S\tREFUSED\tWHY", rows)
	p.table("FUNCTION\tCANDIDATE\tEVALUATED\tGAIN\tCOST\tWHY", candidates)
}

func (p *page) plannedModels(models []api.ModelPlanStatus) {
	var rows, batches, replicas [][]string
	for _, m := range models {
		capacity, busy, device, hold := "unknown", "-", m.Device, "none"
		if m.Known {
			capacity, busy = figure(m.CapacityPerSecond), percent(m.Utilisation)
		}
		if device == "" {
			device = "-"
		}
		if m.HoldMicros > 0 {
			hold = micros(m.HoldMicros)
		}
		rows = append(rows, []string{m.Model, device, capacity, figure(m.DemandPerSecond), figure(m.PlannedPerSecond), busy, percent(m.DirectShed)})
		batches = append(batches, []string{m.Model, "execution", m.Execution, p.why(m.ExecutionWhy)}, []string{m.Model, "hold", hold, p.why(m.HoldWhy)})
		for _, r := range m.Replicas {
			limit := "as learned"
			if r.CapPlanned > 0 {
				limit = strconv.Itoa(r.CapPlanned)
			}
			replicas = append(replicas, []string{m.Model, strconv.FormatUint(r.ID, 10), strconv.Itoa(r.CapLearned), limit, shares(r.Shares), p.why(r.CapWhy)})
		}
	}
	p.table("MODEL\tDEVICE\tCAPACITY/S\tDEMAND/S\tPLANNED/S\tBUSY\tDIRECT REFUSED", rows)
	p.table("MODEL\tBATCHES\tARE\tWHY", batches)
	p.table("MODEL\tREPLICA\tCAP LEARNED\tCAP PLANNED\tSERVES\tWHY", replicas)
}

// table writes aligned columns under a blank line, and nothing when there are no rows.
func (p *page) table(head string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.flush()
	fmt.Fprintln(p.w)
	p.flush()
	fmt.Fprintln(p.w, head)
	for _, row := range rows {
		fmt.Fprintln(p.w, strings.Join(row, "\t"))
	}
	p.flush()
}

// why is a reason, in one cell.
func (p *page) why(reason string) string {
	if reason == "" {
		return "-"
	}
	return p.c.clean(strings.Join(strings.Fields(reason), " "))
}

// shares lists the functions that a replica serves, with their weights.
func shares(all []api.ShareStatus) string {
	if len(all) == 0 {
		return "all"
	}
	parts := make([]string, len(all))
	for i, s := range all {
		name := s.Function
		if name == "" {
			name = "(direct)"
		}
		parts[i] = name + " " + figure(s.Share)
	}
	return strings.Join(parts, ", ")
}

// figure writes a number with four digits that count, never in powers of ten.
func figure(v float64) string {
	if math.Abs(v) < 1000 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // of its own writing
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// percent writes a part of one.
func percent(part float64) string { return figure(100*part) + "%" }
