// Package conformance finds out, by injected faults, where a broker's
// exactly-once boundary really ends.
//
// A claim is one question about a boundary with a closed set of answers. A
// probe is an experiment that answers claims through the contract of package
// broker alone, so that it runs on any adapter. Run holds the observed answers
// against those that the adapter declares: weaker and stronger both fail, for
// then what is written is wrong.
//
// To check an adapter of one's own:
//
//	func TestMain(m *testing.M) { conformance.RunIfWorker(); os.Exit(m.Run()) }
//
//	func TestConformance(t *testing.T) {
//		conformance.Test(t, conformance.Target{
//			Name: "mine", Broker: "mine", Boundary: mine.Boundary(),
//			Start: func(ctx context.Context) (*conformance.Instance, error) {
//				return &conformance.Instance{Open: mine.Open}, nil
//			},
//		})
//	}
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// Run asks one target. It returns an error for bad options only: what goes
// wrong with the target or a probe stands in the report. A cancelled ctx ends
// the run early, with a report of what it has.
func Run(ctx context.Context, t Target, o Options) (*report.Report, error) {
	return RunAll(ctx, []Target{t}, o)
}

// RunAll asks several targets, at the same time unless Options.Servers says
// otherwise.
func RunAll(ctx context.Context, targets []Target, o Options) (*report.Report, error) {
	probes, err := o.probes()
	if err != nil {
		return nil, err
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	o.nonce = rand.Uint64()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Progress != nil {
		var mu sync.Mutex
		tell := o.Progress
		o.Progress = func(target string, f report.Finding, done, of int) {
			mu.Lock()
			defer mu.Unlock()
			tell(target, f, done, of)
		}
	}
	r := &report.Report{Schema: report.Schema, Toolkit: o.Toolkit, Command: o.Command, Seed: o.Seed,
		Started: time.Now(), Claims: o.catalogue(), Targets: make([]report.Target, len(targets))}
	servers := byServer(targets)
	if o.Servers <= 0 {
		o.Servers = max(1, len(servers))
	}
	places := make(chan struct{}, o.Servers)
	var all sync.WaitGroup
	for _, of := range servers {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			ts := make([]*Target, len(of))
			for n, i := range of {
				ts[n] = &targets[i]
			}
			for n, found := range runServer(ctx, ts, probes, o) {
				r.Targets[of[n]] = found
			}
		})
	}
	all.Wait()
	r.Seconds = time.Since(r.Started).Seconds()
	r.Summary.Interrupted = ctx.Err() != nil
	r.Summarise()
	return r, nil
}

// byPlace orders findings as the catalogue does their claims.
func byPlace(a, b report.Finding) int { return place(a.Claim) - place(b.Claim) }

// place is a claim's place in the catalogue.
func place(id string) int {
	return slices.IndexFunc(catalogue, func(c Claim) bool { return string(c.ID) == id })
}

func (t *Target) start(ctx context.Context) (*Instance, error) {
	start := t.Start
	if start == nil {
		start = t.Private
	}
	if start == nil {
		return nil, errors.New("the target has neither Start nor Private")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.StartWithin, 30*time.Second))
	defer cancel()
	i, err := start(ctx)
	if err == nil && i.Open == nil {
		return nil, errors.New("the target's instance has no Open")
	}
	return i, err
}

func (i *Instance) close(ctx context.Context) error {
	if i.Close == nil {
		return nil
	}
	return i.Close(ctx)
}

// runProbe runs one probe on the shared instance or one of its own, and turns
// what it found into findings for each of its claims.
func runProbe(ctx context.Context, t *Target, shared *Instance, p Probe, o Options) []report.Finding {
	b := &Bench{Target: t, Instance: shared, history: newHistory(), mutant: o.mutant, meeting: o.meeting, commits: o.commits, findings: map[boundary.Claim]answer{}}
	if b.commits == nil {
		b.commits = new(sync.RWMutex)
	}
	seed := fnv.New64a()
	fmt.Fprintf(seed, "%d %s %s", o.Seed, t.Name, p.Name)
	b.Rand = rand.New(rand.NewPCG(o.Seed, seed.Sum64()))
	b.name = fmt.Sprintf("c%016x", seed.Sum64()^o.nonce)
	b.Entity = shared.entity(b.name)
	// Where it meets others it waits for theirs too.
	err := b.attempt(ctx, p, max(o.Timeout, t.ProbeWithin)*time.Duration(o.meeting.size()))
	o.meeting.leave()
	found, evidence := b.found()
	return t.findings(ctx, p, o, found, evidence, b.took.Seconds(), err)
}

// findings are those of a probe that found answers, or failed by err. What the end of
// ctx kept it from finding wasn't asked, and is no failure of the probe.
func (t *Target) findings(ctx context.Context, p Probe, o Options, found map[boundary.Claim]answer, evidence report.Evidence, seconds float64, err error) []report.Finding {
	var fs []report.Finding
	for _, id := range p.Claims {
		if !o.wants(id) {
			continue
		}
		c, _ := Lookup(id)
		entry := t.Boundary.Entries[id]
		f := report.Finding{Claim: string(id), Hop: c.Hop, Question: c.Question,
			Declared: string(entry.Declared), Documented: string(entry.Documented), Source: entry.Sources, Note: entry.Note,
			Basis: t.basis(), Evidence: concerning(id, evidence), Seconds: seconds}
		t.judge(&f, c, found, err)
		if _, ok := found[id]; !ok && err != nil && ctx.Err() != nil {
			f.Verdict, f.Reason = report.NotVerifiable, "not asked: the run was interrupted"
		}
		fs = append(fs, f)
	}
	return fs
}

// found is a copy of what the probe recorded: one that is stuck may still be
// at it.
func (b *Bench) found() (map[boundary.Claim]answer, report.Evidence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.findings), report.Evidence{Notes: slices.Clone(b.notes), History: b.history.Events()}
}

// attempt runs the probe within its time, on an instance of its own if it needs
// one. The bench is closed when it returns.
func (b *Bench) attempt(ctx context.Context, p Probe, timeout time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("not run: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the probe took longer than %s", timeout))
	defer cancel()
	if p.Needs.has(NeedLeader) && b.Instance.KillLeader == nil { // which needs no instance to tell
		b.unverifiable("the target is one node, or its nodes can't be killed one by one", p.Claims...)
		return nil
	}
	if b.Target.Private != nil && (p.Needs.own(b.Instance) || b.Instance.Advance != nil) {
		own, err := b.Target.Private(ctx)
		if err != nil {
			return fmt.Errorf("start an instance for this probe: %w", err)
		}
		b.Instance, b.commits = own, new(sync.RWMutex)
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			if err := own.close(end); err != nil {
				b.Note("cleanup: %v", err)
			}
		}()
	}
	switch {
	case p.Needs.has(NeedFault) && b.Instance.Inject == nil:
		b.unverifiable(noFaults(b.Instance), p.Claims...)
		return nil
	case p.Needs.has(NeedCut) && b.Instance.Inject == nil && b.Instance.Cut == nil:
		b.unverifiable("the target has no fault points, and its connections can't be cut", p.Claims...)
		return nil
	case p.Needs.has(NeedLoss) && b.Instance.Inject == nil && (b.Instance.Cut == nil || b.Instance.Network == nil):
		b.unverifiable("the target has no fault points, and its connections can't be silenced and cut", p.Claims...)
		return nil
	case p.Needs.has(NeedNetwork) && b.Instance.Network == nil:
		b.unverifiable("the target's network can't be silenced", p.Claims...)
		return nil
	case p.Needs.has(NeedRestart) && b.Instance.Restart == nil:
		b.unverifiable("the target can't be restarted", p.Claims...)
		return nil
	case p.Needs.has(NeedKill) && b.Instance.Kill == nil:
		b.unverifiable("the target can't be killed", p.Claims...)
		return nil
	}
	start := time.Now()
	defer func() {
		b.took = time.Since(start) // without the cleanup
		b.close()
	}()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- fmt.Errorf("the probe panicked: %v", v)
			}
		}()
		done <- p.Run(ctx, b)
	}()
	select {
	case err := <-done:
		return b.concluded(ctx, err)
	case <-ctx.Done():
	}
	// A probe heeds its context; one that is stuck in an adapter is abandoned.
	grace := time.NewTimer(10 * time.Second)
	defer grace.Stop()
	select {
	case err := <-done:
		return b.concluded(ctx, err)
	case <-grace.C:
		return b.concluded(ctx, fmt.Errorf("the probe is stuck, 10 s after: %w", context.Cause(ctx)))
	}
}

// concluded is the error of a probe. One whose context ended has found nothing
// out: what it took for the broker's silence may have been its own.
func (b *Bench) concluded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	b.mu.Lock()
	clear(b.findings)
	b.mu.Unlock()
	if err == nil {
		return context.Cause(ctx)
	}
	return expand(ctx, err)
}

// expand adds why the context ended, where that is why the probe failed.
func expand(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

func (b *Bench) unverifiable(why string, ids ...boundary.Claim) {
	for _, id := range ids {
		b.NotVerifiable(id, "%s", why)
	}
}

// undeclared begins the reason of a finding that nobody declared.
const undeclared = "the adapter declares no answer; "

// judge sets the verdict: observed against declared.
func (t *Target) judge(f *report.Finding, c Claim, found map[boundary.Claim]answer, err error) {
	a, ok := found[c.ID]
	f.Observed, f.Reason = string(a.observed), a.reason
	if ok && err != nil {
		f.Evidence.Notes = append(slices.Clone(f.Evidence.Notes), "after the answer: "+err.Error())
	}
	switch {
	case !ok && err != nil, ok && err != nil && a.verdict != "":
		f.Verdict, f.Reason = report.Failed, err.Error()
	case !ok:
		f.Verdict, f.Reason = report.Failed, "the probe gave no answer"
	case a.verdict != "":
		f.Verdict = a.verdict
	case c.rank(a.observed) < 0:
		f.Verdict, f.Reason = report.Failed, fmt.Sprintf("the probe answered %q, which is none of %q", a.observed, c.Answers)
	case f.Declared == string(boundary.NotApplicable):
		f.Verdict, f.Reason = report.Failed, "the adapter declares that the claim is not applicable, and yet there is an answer: "+a.reason
	case f.Declared == "":
		f.Verdict, f.Reason = report.Failed, undeclared+a.reason
	case c.rank(boundary.Answer(f.Declared)) < 0:
		f.Verdict, f.Reason = report.Failed, fmt.Sprintf("the adapter declares %q, which is none of %q", f.Declared, c.Answers)
	case f.Observed == f.Declared:
		f.Verdict = report.Equal
	default:
		f.Verdict = report.Weaker
		if c.rank(a.observed) > c.rank(boundary.Answer(f.Declared)) {
			f.Verdict = report.Stronger
		}
		for _, d := range t.Deviations {
			if d.Claim == c.ID && d.Answer == a.observed {
				f.Verdict, f.Reason = report.Deviates, fmt.Sprintf("%s (%s)", a.reason, d.Reason)
			}
		}
	}
}
