package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// Cluster is a broker of several nodes, for [Soaks].
type Cluster struct {
	// Targets are what is soaked on it, each a configuration of the same nodes.
	// Start and Private of a Target are not called.
	Targets []Target
	// Disturbances names what can be done to the nodes, in order.
	Disturbances []string
	// Start starts the nodes. An error that is ErrAbsent says what is missing.
	Start func(ctx context.Context) (*ClusterInstance, error)
	// StartWithin bounds Start. Default 5 minutes: the first start may have to
	// bring the broker.
	StartWithin time.Duration
}

// ClusterInstance is a cluster that runs.
type ClusterInstance struct {
	// Instances has one for each of Cluster.Targets. Their Close is not called.
	Instances []*Instance
	// Sole says for each of Cluster.Targets why it can have but one consumer at a
	// time; empty if it can have several, and nil if all can.
	Sole []string
	// Disturbances are for one of Cluster.Targets, in the order of
	// Cluster.Disturbances.
	Disturbances func(target int) []Disturbance
	// Close stops the nodes.
	Close func(ctx context.Context) error
}

const (
	clusterStart = 5 * time.Minute
	clusterClose = 30 * time.Second
)

// Soaks runs each disturbance on each target of the clusters, one after the other,
// for the nodes of one cluster keep a machine busy. It returns a soak for each, also
// for those that could not be run, and ends soon after ctx has.
func Soaks(ctx context.Context, clusters []Cluster, o SoakOptions) []report.Soak {
	var all []report.Soak
	for _, c := range clusters {
		if o.Disturbance != "" && !slices.Contains(c.Disturbances, o.Disturbance) {
			continue
		}
		all = append(all, soakCluster(ctx, &c, o)...)
	}
	return all
}

func soakCluster(ctx context.Context, c *Cluster, o SoakOptions) []report.Soak {
	start, cancel := context.WithTimeoutCause(ctx, cmp.Or(c.StartWithin, clusterStart), errors.New("the start of the cluster took too long"))
	running, err := c.Start(start)
	cancel()
	if err == nil && len(running.Instances) != len(c.Targets) {
		err = errors.Join(fmt.Errorf("%d instances for %d targets", len(running.Instances), len(c.Targets)), running.close(ctx))
	}
	if err != nil {
		v := report.Failed
		if errors.Is(err, ErrAbsent) {
			v = report.NotApplicable
		}
		return c.none(o, v, err.Error())
	}
	var all []report.Soak
	for n, name := range c.Disturbances {
		if o.Disturbance != "" && o.Disturbance != name {
			continue
		}
		for t := range c.Targets {
			if ctx.Err() != nil {
				all = append(all, c.not(t, n, report.NotVerifiable, "the run was ended before: "+context.Cause(ctx).Error()))
				continue
			}
			one := o
			if len(running.Sole) > t && running.Sole[t] != "" {
				one.Consumers = 1
			}
			s := Soak(ctx, c.Targets[t], running.Instances[t], running.Disturbances(t)[n], one)
			if one.Consumers == 1 && o.Consumers != 1 {
				s.Notes = append([]string{running.Sole[t]}, s.Notes...)
			}
			all = append(all, s)
		}
	}
	if err := running.close(ctx); err != nil {
		last := &all[len(all)-1]
		last.Notes = append(last.Notes, fmt.Sprintf("the cluster did not stop cleanly: %v", err))
	}
	return all
}

func (i *ClusterInstance) close(ctx context.Context) error {
	if i.Close == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clusterClose)
	defer cancel()
	return i.Close(ctx)
}

// none is a soak for each that was not run.
func (c *Cluster) none(o SoakOptions, v report.Verdict, why string) []report.Soak {
	var all []report.Soak
	for n, name := range c.Disturbances {
		if o.Disturbance != "" && o.Disturbance != name {
			continue
		}
		for t := range c.Targets {
			all = append(all, c.not(t, n, v, why))
		}
	}
	return all
}

func (c *Cluster) not(t, n int, v report.Verdict, why string) report.Soak {
	target := &c.Targets[t]
	return report.Soak{Target: target.Name, Broker: target.Broker, Disturbance: c.Disturbances[n], Basis: target.basis(), Verdict: v, Reason: why}
}

// SelectClusters returns the clusters with those of their targets whose name or
// broker one of the globs matches; all of them if there is no glob. It returns
// path.ErrBadPattern for a glob that is none.
func SelectClusters(clusters []Cluster, globs []string) ([]Cluster, error) {
	if len(globs) == 0 {
		return clusters, nil
	}
	var chosen []Cluster
	for _, c := range clusters {
		keep := make([]int, 0, len(c.Targets))
		for t := range c.Targets {
			for _, glob := range globs {
				name, err := path.Match(glob, c.Targets[t].Name)
				if err != nil {
					return nil, fmt.Errorf("%q: %w", glob, err)
				}
				if broker, _ := path.Match(glob, c.Targets[t].Broker); name || broker {
					keep = append(keep, t)
					break
				}
			}
		}
		if len(keep) > 0 {
			chosen = append(chosen, c.only(keep))
		}
	}
	return chosen, nil
}

// only is the cluster with some of its targets.
func (c Cluster) only(keep []int) Cluster {
	all, start := c.Targets, c.Start
	c.Targets = make([]Target, len(keep))
	for i, t := range keep {
		c.Targets[i] = all[t]
	}
	c.Start = func(ctx context.Context) (*ClusterInstance, error) {
		running, err := start(ctx)
		if err != nil || len(running.Instances) != len(all) {
			return running, err
		}
		some := *running
		some.Instances, some.Sole = make([]*Instance, len(keep)), nil
		for i, t := range keep {
			some.Instances[i] = running.Instances[t]
			if len(running.Sole) > t {
				some.Sole = append(some.Sole, running.Sole[t])
			}
		}
		some.Disturbances = func(target int) []Disturbance { return running.Disturbances(keep[target]) }
		return &some, nil
	}
	return c
}
