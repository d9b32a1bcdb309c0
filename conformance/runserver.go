package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// byServer returns the places of targets, those together that share a server, and the
// long ones first: one that begins as the others end would be all that runs then.
func byServer(targets []Target) (servers [][]int) {
	at := map[string]int{}
	for i, t := range targets {
		n, known := at[t.Server]
		if t.Server == "" || !known {
			n = len(servers)
			servers = append(servers, nil)
			at[t.Server] = n
		}
		servers[n] = append(servers[n], i)
	}
	long := func(of []int) int {
		if slices.ContainsFunc(of, func(i int) bool { return targets[i].Long }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(servers, func(a, b []int) int { return long(a) - long(b) })
	return servers
}

// course is a target as it is asked, and what came of it so far.
type course struct {
	target *Target
	shared *Instance // nil for one that can't be asked
	opts   Options
	of     int // the findings that there will be

	mu  sync.Mutex
	out report.Target
}

// runServer asks the targets of one server: whatever doesn't disturb it side by side,
// then what does one by one, and last what all can have at once.
func runServer(ctx context.Context, ts []*Target, probes []Probe, o Options) []report.Target {
	o.commits = new(sync.RWMutex)
	courses := make([]*course, len(ts))
	var all sync.WaitGroup
	for i, t := range ts {
		all.Go(func() { courses[i] = startCourse(ctx, t, probes, o) })
	}
	all.Wait()

	places := make(chan struct{}, o.Parallel)
	var alone []func()
	together := map[Need][]func(*meeting){}
	for _, p := range probes {
		for _, c := range courses {
			switch need := p.Needs.meets(); {
			case c.shared == nil:
			case !c.disturbs(p):
				places <- struct{}{}
				all.Go(func() {
					defer func() { <-places }()
					c.ask(ctx, p, nil)
				})
			case need != 0 && c.shared.Advance == nil:
				together[need] = append(together[need], func(m *meeting) { c.ask(ctx, p, m) })
			default:
				alone = append(alone, func() { c.ask(ctx, p, nil) })
			}
		}
	}
	all.Wait()
	for _, ask := range alone {
		ask()
	}
	for _, need := range meets {
		m := newMeeting(len(together[need]))
		for _, ask := range together[need] {
			all.Go(func() { ask(m) })
		}
		all.Wait()
	}

	found := make([]report.Target, len(ts))
	for i, c := range courses {
		all.Go(func() { found[i] = c.end(ctx) })
	}
	all.Wait()
	return found
}

// startCourse starts a target.
func startCourse(ctx context.Context, t *Target, probes []Probe, o Options) *course {
	c := &course{target: t, opts: o, out: report.Target{Name: t.Name, Broker: t.Broker, Kind: cmp.Or(t.Kind, report.KindEmulator), Real: t.Real,
		Like: t.Like, Of: t.Boundary.Of, Versions: map[string]string{}}}
	for _, d := range t.Deviations {
		c.out.Deviations = append(c.out.Deviations, report.Deviation{Claim: string(d.Claim), Answer: string(d.Answer), Reason: d.Reason})
	}
	shared, err := t.start(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		for _, p := range probes {
			c.out.Findings = append(c.out.Findings, t.findings(ctx, p, o, nil, report.Evidence{}, 0, err)...)
		}
		return c
	case errors.Is(err, ErrAbsent):
		c.out.Absent = err.Error()
		return c
	case err != nil:
		c.out.Error = err.Error()
		return c
	}
	c.shared = shared
	if shared.Versions != nil {
		c.out.Versions = shared.Versions
	}
	found := *t
	found.Boundary = t.Boundary.At(c.out.Versions[t.Broker])
	c.target, c.out.Of = &found, found.Boundary.Of
	for _, p := range probes {
		for _, id := range p.Claims {
			if o.wants(id) {
				c.of++
			}
		}
	}
	return c
}

// disturbs reports whether others on the server would notice the probe.
func (c *course) disturbs(p Probe) bool {
	return c.target.Private == nil && (p.Needs.own(c.shared) || p.Needs.has(NeedQuiet) || c.shared.Advance != nil)
}

// ask runs a probe and takes its findings down.
func (c *course) ask(ctx context.Context, p Probe, m *meeting) {
	o := c.opts
	o.meeting = m
	findings := runProbe(ctx, c.target, c.shared, p, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range findings {
		c.out.Findings = append(c.out.Findings, f)
		if o.Progress != nil {
			o.Progress(c.target.Name, f, len(c.out.Findings), c.of)
		}
	}
}

// end closes what startCourse started.
func (c *course) end(ctx context.Context) report.Target {
	slices.SortFunc(c.out.Findings, byPlace)
	if c.shared == nil {
		return c.out
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(c.target.EndWithin, 20*time.Second))
	defer cancel()
	if err := c.shared.close(ctx); err != nil {
		c.out.Error = fmt.Sprintf("the target did not close cleanly: %v", err)
	}
	return c.out
}
