package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
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
			turns = append(turns, []string{d.Name, numerals.Percent(d.Busy), t.Model, micros(t.TurnMicros), numerals.Percent(t.Share)})
		}
		if len(d.Tenants) == 0 {
			turns = append(turns, []string{d.Name, numerals.Percent(d.Busy), "-", "-", "-"})
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
			budget = numerals.Short(f.BudgetPerSecond)
		}
		rows = append(rows, []string{f.Name, numerals.Short(f.Weight), numerals.PerSecond(f.QueriesPerSecond), micros(f.SLOMicros), numerals.PerSecond(f.CostPerSecond), budget, numerals.Percent(f.Refused), p.c.cell(f.RefusedWhy)})
		for _, c := range f.Candidates {
			accuracy := "-"
			if c.Accuracy != nil {
				accuracy = numerals.Short(*c.Accuracy)
				if c.Labels > 0 {
					accuracy += fmt.Sprintf(" of %.0f", c.Labels)
				}
			}
			candidates = append(candidates, []string{f.Name, c.Model, numerals.Percent(c.Evaluated), numerals.Short(c.Gain), accuracy, numerals.Short(c.Cost), p.c.cell(c.Why)})
		}
	}
	p.table("FUNCTION\tWEIGHT\tQUERIES/S\tSLO\tCOST/S\tBUDGET/S\tREFUSED\tWHY", rows)
	p.table("FUNCTION\tCANDIDATE\tEVALUATED\tGAIN\tACCURACY\tCOST\tWHY", candidates)
}

func (p *page) plannedModels(models []api.ModelPlanStatus) {
	var rows, batches, replicas [][]string
	for _, m := range models {
		capacity, busy, device, hold := "unknown", "-", m.Device, "none"
		if m.Known {
			capacity, busy = numerals.Short(m.CapacityPerSecond), numerals.Percent(m.Utilisation)
		}
		if device == "" {
			device = "-"
		}
		if m.HoldMicros > 0 {
			hold = micros(m.HoldMicros)
		}
		rows = append(rows, []string{m.Model, device, capacity, numerals.PerSecond(m.DemandPerSecond), numerals.PerSecond(m.PlannedPerSecond), busy, numerals.Percent(m.DirectShed)})
		batches = append(batches, []string{m.Model, "execution", m.Execution, p.c.cell(m.ExecutionWhy)}, []string{m.Model, "hold", hold, p.c.cell(m.HoldWhy)})
		for _, r := range m.Replicas {
			limit := "as learned"
			if r.CapPlanned > 0 {
				limit = strconv.Itoa(r.CapPlanned)
			}
			replicas = append(replicas, []string{m.Model, strconv.FormatUint(r.ID, 10), strconv.Itoa(r.CapLearned), limit, shares(r.Shares), p.c.cell(r.CapWhy)})
		}
	}
	p.table("MODEL\tDEVICE\tCAPACITY/S\tDEMAND/S\tPLANNED/S\tBUSY\tDIRECT REFUSED", rows)
	p.table("MODEL\tBATCHES\tPLAN\tWHY", batches)
	p.table("MODEL\tREPLICA\tCAP LEARNED\tCAP PLANNED\tSERVES\tWHY", replicas)
}

// table writes a blank line and aligned columns, or nothing if there are no rows.
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

// shares lists the functions that a replica serves, with their weights; "(direct)" are requests to the model itself.
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
		parts[i] = name + " " + numerals.Short(s.Share)
	}
	return strings.Join(parts, ", ")
}
