package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// What restarts or kills the server that all probes share, or cuts its connections, runs
// alone, after the others, of whichever target they are. Where a fault can strike the probe's own requests, a cut
// disturbs nobody.
func TestProbesThatDisturbRunLastAndAlone(t *testing.T) {
	target := nowhere()
	start := target.Start
	target.Start = func(ctx context.Context) (*Instance, error) {
		i, err := start(ctx)
		i.Restart = func(context.Context) error { return nil }
		i.Network = func(Network) error { return nil }
		i.Cut = func() (int, error) { return 1, nil }
		return i, err
	}
	for _, need := range []Need{NeedCut, NeedLoss} {
		if !need.own(&Instance{}) || need.own(&Instance{Inject: func(Fault) (Injection, error) { return nil, nil }}) {
			t.Errorf("need %d: a cut disturbs others where there are no faults, and nowhere else", need)
		}
	}
	var running, quietLeft atomic.Int32
	var mu sync.Mutex
	var wrong []string
	probe := func(n int, needs Need) Probe {
		return Probe{fmt.Sprint("made-up-", n), claims(boundary.SettleAnswer), needs, func(_ context.Context, b *Bench) error {
			with := running.Add(1)
			defer running.Add(-1)
			if needs.own(b.Instance) && (with > 1 || quietLeft.Load() > 0) {
				mu.Lock()
				wrong = append(wrong, fmt.Sprintf("%d beside %d others, %d before which it runs", n, with-1, quietLeft.Load()))
				mu.Unlock()
			}
			if !needs.own(b.Instance) {
				quietLeft.Add(-1)
			}
			b.Answer(boundary.SettleAnswer, boundary.Sent, "seen")
			return nil
		}}
	}
	var probes []Probe
	for n := range 12 {
		needs := Need(0)
		switch n % 3 {
		case 0:
			needs = NeedRestart | NeedNetwork
		case 1:
			needs = NeedCut
		default:
			quietLeft.Add(2) // one on each target
		}
		probes = append(probes, probe(n, needs))
	}
	second := target
	for _, out := range runServer(t.Context(), []*Target{&target, &second}, probes, Options{Parallel: 4, Timeout: time.Minute}) {
		if len(wrong) > 0 || len(out.Findings) != len(probes) || out.Error != "" {
			t.Errorf("%d findings of %d, error %q; disturbing: %q", len(out.Findings), len(probes), out.Error, wrong)
		}
		for _, f := range out.Findings {
			if f.Observed != string(boundary.Sent) {
				t.Errorf("%s: %s %s", f.Claim, f.Verdict, f.Reason)
			}
		}
	}
}

// Targets of one server are asked together, and count as one of those at a time.
func TestTargetsShareAServer(t *testing.T) {
	var ts []Target
	for _, of := range []string{"", "one", "", "two", "one", "two"} {
		ts = append(ts, Target{Server: of, Long: of == "two"})
	}
	if got, want := fmt.Sprint(byServer(ts)), "[[3 5] [0] [1 4] [2]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var running, most atomic.Int32
	both := make(chan struct{})
	for i := range ts {
		ts[i].Start = func(ctx context.Context) (*Instance, error) {
			n := running.Add(1)
			defer running.Add(-1)
			most.Store(max(most.Load(), n))
			if ts[i].Server == "one" {
				select { // the other one starts beside it
				case both <- struct{}{}:
				case <-both:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return nil, ErrAbsent
		}
	}
	r, err := RunAll(t.Context(), ts, Options{Servers: 1})
	if err != nil || r.Summary.Absent != len(ts) || most.Load() > 2 {
		t.Errorf("%d absent of %d, %d at a time, error %v", r.Summary.Absent, len(ts), most.Load(), err)
	}
}

func TestTargetThatIsNotHere(t *testing.T) {
	absent := Target{Name: "absent", Start: func(context.Context) (*Instance, error) {
		return nil, fmt.Errorf("install a broker: %w", ErrAbsent)
	}}
	here := nowhere()
	r, err := RunAll(t.Context(), []Target{absent, here}, Options{Claims: []string{string(boundary.SettleAnswer)}})
	if err != nil {
		t.Fatal(err)
	}
	a := r.Targets[0]
	if a.Absent == "" || a.Error != "" || len(a.Findings) != 0 || r.Summary.Absent != 1 || r.Summary.Unreached != 0 {
		t.Errorf("absent %q, error %q, %d findings; summary %+v", a.Absent, a.Error, len(a.Findings), r.Summary)
	}
	// Nothing but absent targets is no proof of anything.
	if r, _ = RunAll(t.Context(), []Target{absent}, Options{}); r.Summary.Exit != report.ExitUnknown {
		t.Errorf("a run of an absent target alone has exit code %d", r.Summary.Exit)
	}
}

func TestTargetIsHeldAgainstItsRelease(t *testing.T) {
	target := nowhere()
	target.Broker = "b"
	target.Boundary = boundary.Boundary{Of: "b 4", Entries: map[boundary.Claim]boundary.Entry{boundary.SettleAnswer: {Declared: boundary.Confirmed, Note: "look"}},
		Earlier: []boundary.Earlier{{Before: "4.0", Of: "b 3", Entries: map[boundary.Claim]boundary.Entry{boundary.SettleAnswer: {Declared: boundary.Sent}}}}}
	start := target.Start
	for version, want := range map[string]report.Verdict{"3.13.1": report.Equal, "4.0": report.Weaker, "model of 4.x": report.Weaker} {
		target.Start = func(ctx context.Context) (*Instance, error) {
			i, err := start(ctx)
			i.Versions = map[string]string{"b": version}
			return i, err
		}
		out := runServer(t.Context(), []*Target{&target}, []Probe{{"made-up", claims(boundary.SettleAnswer), 0, func(_ context.Context, b *Bench) error {
			b.Answer(boundary.SettleAnswer, boundary.Sent, "seen")
			return nil
		}}}, Options{Parallel: 1, Timeout: time.Minute})[0]
		if f := out.Findings[0]; f.Verdict != want || (out.Of == "b 3") != (want == report.Equal) {
			t.Errorf("version %s: %s, of %s, want %s", version, f.Verdict, out.Of, want)
		}
	}
}

func TestTargetsAtATime(t *testing.T) {
	var running, most atomic.Int32
	ts := make([]Target, 6)
	for i := range ts {
		ts[i] = Target{Name: fmt.Sprint(i), Start: func(context.Context) (*Instance, error) {
			defer running.Add(-1)
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			return nil, ErrAbsent
		}}
	}
	r, err := RunAll(t.Context(), ts, Options{Servers: 2})
	if err != nil || r.Summary.Absent != len(ts) || most.Load() > 2 {
		t.Errorf("%d absent of %d, %d at a time, error %v", r.Summary.Absent, len(ts), most.Load(), err)
	}
}
