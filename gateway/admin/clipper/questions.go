package clipper

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/xebec-serving/xebec/api"
)

// appInfo, modelInfo and containerInfo have Clipper's members.
type appInfo struct {
	Name             string   `json:"name"`
	InputType        string   `json:"input_type"`
	DefaultOutput    string   `json:"default_output"`
	LatencySLOMicros int64    `json:"latency_slo_micros"`
	LinkedModels     []string `json:"linked_models"`
}

type modelInfo struct {
	Name      string   `json:"model_name"`
	Version   string   `json:"model_version"`
	InputType string   `json:"input_type"`
	Labels    []string `json:"labels"`
	Container string   `json:"container_name"`
	DataPath  string   `json:"model_data_path"`
	BatchSize int      `json:"batch_size"`
	Current   bool     `json:"is_current_version"`
}

type containerInfo struct {
	ModelID   string `json:"model_id"`
	Name      string `json:"model_name"`
	Version   string `json:"model_version"`
	ReplicaID uint64 `json:"model_replica_id"`
	InputType string `json:"input_type"`
	BatchSize int    `json:"batch_size"`
	// State is not Clipper's, which only has containers that are connected.
	State api.ReplicaState `json:"state"`
}

// none is Clipper's answer about what does not exist.
type none struct{}

func appOf(ctx context.Context, c Control, f *api.FunctionStatus) (appInfo, error) {
	info := appInfo{
		Name: f.Spec.Name, InputType: f.Spec.InputType, DefaultOutput: asText(f.Spec.Default), LatencySLOMicros: f.Spec.SLO.Microseconds(),
		LinkedModels: notNil(f.Spec.Models),
	}
	if info.InputType != "" || len(f.Spec.Models) == 0 {
		return info, nil
	}
	id, err := api.ParseModelRef(f.Spec.Models[0])
	if err != nil {
		return info, api.Errorf(api.Internal, "function %s: %w", f.Spec.Name, err)
	}
	versions, err := c.Models(ctx, id.Name)
	if err == nil && len(versions) > 0 {
		info.InputType = api.InputTypeOf(current(versions).Inputs)
	}
	if hasCode(err, api.NotFound) { // deleted since the function was read
		err = nil
	}
	return info, err
}

func modelOf(m *api.ModelStatus) modelInfo {
	info := modelInfo{
		Name: m.Spec.Name, Version: m.Spec.Version, InputType: api.InputTypeOf(m.Spec.Inputs), Labels: []string{},
		Container: m.Spec.Run.Image, DataPath: m.Dir, BatchSize: -1, Current: m.Serving,
	}
	if m.Spec.Batching.Policy == api.BatchFixed {
		info.BatchSize = m.Spec.Batching.Max
	}
	env := m.Spec.Run.Env
	if env[envName].Value != info.Name || env[envVersion].Value != info.Version || env[envInput].Value != info.InputType {
		return info // declared elsewhere: its environment is not shown
	}
	info.DataPath = env[envPath].Value
	var labels []string
	if json.Unmarshal([]byte(env[envLabels].Value), &labels) == nil {
		info.Labels = notNil(labels)
	}
	return info
}

func containerOf(m *api.ModelStatus, r *api.ReplicaStatus) containerInfo {
	info := modelOf(m)
	return containerInfo{
		ModelID: info.Name + ":" + info.Version, Name: info.Name, Version: info.Version, ReplicaID: r.ID, InputType: info.InputType,
		BatchSize: info.BatchSize, State: r.State,
	}
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func linkedModels(ctx context.Context, c Control, r *request) (Answer, error) {
	app := r.name("app_name", "application")
	if r.err != nil {
		return Answer{}, r.err
	}
	f, err := functionOf(ctx, c, app, "No application with name '%s' exists.")
	if err != nil {
		return Answer{}, err
	}
	return Answer{Value: notNil(f.Spec.Models)}, nil
}

func allApplications(ctx context.Context, c Control, r *request) (Answer, error) {
	verbose := r.boolean("verbose")
	if r.err != nil {
		return Answer{}, r.err
	}
	all, err := c.Functions(ctx, "")
	if err != nil {
		return Answer{}, err
	}
	names, infos := []string{}, []appInfo{}
	for i := range all {
		names = append(names, all[i].Spec.Name)
		if verbose {
			info, err := appOf(ctx, c, &all[i])
			if err != nil {
				return Answer{}, err
			}
			infos = append(infos, info)
		}
	}
	return either(verbose, names, infos), nil
}

// either is the answer to a question with the member verbose.
func either[T any](verbose bool, names []string, infos []T) Answer {
	if verbose {
		return Answer{Value: infos}
	}
	return Answer{Value: names}
}

func allModels(ctx context.Context, c Control, r *request) (Answer, error) {
	verbose := r.boolean("verbose")
	if r.err != nil {
		return Answer{}, r.err
	}
	all, err := c.Models(ctx, "")
	names, infos := []string{}, []modelInfo{}
	for i := range all {
		info := modelOf(&all[i])
		names, infos = append(names, info.Name+":"+info.Version), append(infos, info)
	}
	return either(verbose, names, infos), err
}

func allContainers(ctx context.Context, c Control, r *request) (Answer, error) {
	verbose := r.boolean("verbose")
	if r.err != nil {
		return Answer{}, r.err
	}
	all, err := c.Models(ctx, "")
	names, infos := []string{}, []containerInfo{}
	for i := range all {
		for j := range all[i].Replicas {
			info := containerOf(&all[i], &all[i].Replicas[j])
			names, infos = append(names, fmt.Sprintf("%s:%d", info.ModelID, info.ReplicaID)), append(infos, info)
		}
	}
	return either(verbose, names, infos), err
}

func application(ctx context.Context, c Control, r *request) (Answer, error) {
	name := r.name("name", "application")
	if r.err != nil {
		return Answer{}, r.err
	}
	f, err := functionOf(ctx, c, name, "no application '%s'")
	if hasCode(err, api.NotFound) {
		return Answer{Value: none{}}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	info, err := appOf(ctx, c, f)
	return Answer{Value: info}, err
}

// version returns a version of a model, or nil if there is none.
func version(ctx context.Context, c Control, id api.ModelID) (*api.ModelStatus, error) {
	versions, err := c.Models(ctx, id.Name)
	if hasCode(err, api.NotFound) {
		return nil, nil
	}
	return find(versions, id), err
}

func model(ctx context.Context, c Control, r *request) (Answer, error) {
	id := r.model()
	if r.err != nil {
		return Answer{}, r.err
	}
	m, err := version(ctx, c, id)
	if m == nil {
		return Answer{Value: none{}}, err
	}
	return Answer{Value: modelOf(m)}, err
}

func container(ctx context.Context, c Control, r *request) (Answer, error) {
	id, replica := r.model(), r.integer("replica_id")
	if r.err != nil {
		return Answer{}, r.err
	}
	m, err := version(ctx, c, id)
	if m == nil || err != nil {
		return Answer{Value: none{}}, err
	}
	for i := range m.Replicas {
		if replica >= 0 && m.Replicas[i].ID == uint64(replica) {
			return Answer{Value: containerOf(m, &m.Replicas[i])}, nil
		}
	}
	return Answer{Value: none{}}, nil
}

// learned is the answer to get_state.
type learned struct {
	App        string                  `json:"app_name"`
	UID        string                  `json:"uid"`
	Policy     string                  `json:"policy"`
	Candidates []api.CandidateLearning `json:"candidates"`
	// Reason says why the candidates are not the user's own state.
	Reason string `json:"reason,omitempty"`
}

func state(ctx context.Context, c Control, r *request) (Answer, error) {
	app, uid := r.name("app_name", "application"), r.uid()
	if r.err != nil {
		return Answer{}, r.err
	}
	f, err := functionOf(ctx, c, app, "No app with name '%s' exists.")
	if err != nil {
		return Answer{}, err
	}
	l := learned{App: app, UID: uid, Policy: f.Spec.Policy.Name, Candidates: []api.CandidateLearning{}}
	switch {
	case f.Policy == nil:
		l.Reason = "the application has no models, so nothing is learned"
	case !f.Policy.Learns:
		l.Reason = "the policy " + l.Policy + " does not learn"
	default:
		for i := range f.Policy.Contexts {
			if f.Policy.Contexts[i].Context == uid {
				l.Candidates = notNil(f.Policy.Contexts[i].Candidates)
				return Answer{Value: l}, nil
			}
		}
		l.Candidates = notNil(f.Policy.Candidates)
		l.Reason = "there is no state of this user among the contexts that are shown: this is what was learned over all users"
	}
	return Answer{Value: l}, nil
}
