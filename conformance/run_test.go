package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/internal/bubbletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nowhere is a target whose instance opens no connection.
func nowhere() Target {
	return Target{Name: "nowhere", Start: func(context.Context) (*Instance, error) {
		return &Instance{Open: func(context.Context) (broker.Conn, error) { return nil, broker.ErrUnavailable }}, nil
	}}
}

func TestJudge(t *testing.T) {
	id := boundary.SettleAnswer // none < sent < pending-then-confirmed < confirmed
	c, _ := Lookup(id)
	target := Target{Deviations: []Deviation{{Claim: id, Answer: boundary.None, Reason: "the emulator's way"}}}
	saw := func(a boundary.Answer) map[boundary.Claim]answer {
		return map[boundary.Claim]answer{id: {observed: a, reason: "seen"}}
	}
	for _, x := range []struct {
		declared boundary.Answer
		found    map[boundary.Claim]answer
		err      error
		want     report.Verdict
	}{
		{boundary.Sent, saw(boundary.Sent), nil, report.Equal},
		{boundary.Confirmed, saw(boundary.Sent), nil, report.Weaker},
		{boundary.Sent, saw(boundary.Confirmed), nil, report.Stronger},
		{boundary.Sent, saw(boundary.None), nil, report.Deviates},
		{"", saw(boundary.Sent), nil, report.Failed},
		{boundary.Sent, saw("gibberish"), nil, report.Failed},
		{"gibberish", saw(boundary.Sent), nil, report.Failed},
		{boundary.Sent, nil, nil, report.Failed},
		{boundary.Sent, nil, errors.New("broke"), report.Failed},
		{boundary.Sent, map[boundary.Claim]answer{id: {verdict: report.NotVerifiable, reason: "no clock"}}, nil, report.NotVerifiable},
		{boundary.NotApplicable, map[boundary.Claim]answer{id: {verdict: report.NotApplicable, reason: "no answer"}}, nil, report.NotApplicable},
		{boundary.NotApplicable, saw(boundary.Sent), nil, report.Failed},
		{boundary.Sent, map[boundary.Claim]answer{id: {verdict: report.NotVerifiable}}, errors.New("broke"), report.Failed},
		// What was answered before the probe broke stands.
		{boundary.Sent, saw(boundary.Sent), errors.New("broke"), report.Equal},
	} {
		f := report.Finding{Claim: string(id), Declared: string(x.declared)}
		target.judge(&f, c, x.found, x.err)
		if f.Verdict != x.want {
			t.Errorf("declared %q, found %+v, error %v: %s (%s), want %s", x.declared, x.found, x.err, f.Verdict, f.Reason, x.want)
		}
		if f.Reason == "" && f.Verdict != report.NotVerifiable {
			t.Errorf("declared %q, found %+v: no reason", x.declared, x.found)
		}
	}
}

// made runs a made-up probe.
func made(ctx context.Context, needs Need, run func(context.Context, *Bench) error) report.Finding {
	target := nowhere()
	shared, err := target.start(ctx)
	if err != nil {
		panic(err)
	}
	p := Probe{"made-up", claims(boundary.SettleAnswer), needs, run}
	return runProbe(ctx, &target, shared, p, Options{Timeout: time.Minute})[0]
}

func TestProbeThatBreaks(t *testing.T) {
	for want, run := range map[string]func(context.Context, *Bench) error{
		"panicked: oh":   func(context.Context, *Bench) error { panic("oh") },
		"gave no answer": func(context.Context, *Bench) error { return nil },
		"open a connection: unavailable": func(ctx context.Context, b *Bench) error {
			_, err := b.Ensure(ctx, nil)
			return err
		},
	} {
		if f := made(t.Context(), 0, run); f.Verdict != report.Failed || !strings.Contains(f.Reason, want) {
			t.Errorf("%s: %s: %s", want, f.Verdict, f.Reason)
		}
	}
}

func TestProbeIsBounded(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		start := time.Now()
		f := made(t.Context(), 0, func(ctx context.Context, _ *Bench) error { <-ctx.Done(); return ctx.Err() })
		if f.Verdict != report.Failed || !strings.Contains(f.Reason, "longer than 1m0s") || time.Since(start) != time.Minute {
			t.Errorf("%s after %s: %s", f.Verdict, time.Since(start), f.Reason)
		}
		free := make(chan struct{})
		f = made(t.Context(), 0, func(context.Context, *Bench) error { <-free; return nil })
		if f.Verdict != report.Failed || !strings.Contains(f.Reason, "stuck") {
			t.Errorf("%s: %s", f.Verdict, f.Reason)
		}
		close(free)
	})
}

// TestProbeLeavesNothingBroken: however a probe ends, the network carries again and the
// broker is up when the next one begins, by a time of their own.
func TestProbeLeavesNothingBroken(t *testing.T) {
	silenced := func(then func(ctx context.Context, carry func() error) error) func(context.Context, *Bench) error {
		return func(ctx context.Context, b *Bench) error {
			carry, err := b.silence(ctx)
			return errors.Join(err, then(ctx, carry))
		}
	}
	var free chan struct{}
	for name, run := range map[string]func(context.Context, *Bench) error{
		"it mends it itself": silenced(func(_ context.Context, carry func() error) error { return errors.Join(carry(), carry()) }),
		"an error":           silenced(func(context.Context, func() error) error { return errors.New("broke") }),
		"its time is over":   silenced(func(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() }),
		"a panic":            silenced(func(context.Context, func() error) error { panic("oh") }),
		"stuck":              silenced(func(context.Context, func() error) error { <-free; return nil }),
		"its time is over while the broker starts": func(ctx context.Context, b *Bench) error {
			sleep(ctx, time.Minute-time.Second)
			return b.Kill(ctx)
		},
	} {
		bubbletest.Run(t, func(t *testing.T) {
			free = make(chan struct{})
			defer close(free)
			var mu sync.Mutex
			var said []string
			down := false
			shared := &Instance{
				Network: func(n Network) error {
					mu.Lock()
					defer mu.Unlock()
					said = append(said, fmt.Sprint("silent: ", n.Silent))
					return nil
				},
				Kill: func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					down = !sleep(ctx, 20*time.Second)
					return ctx.Err()
				},
			}
			target := nowhere()
			runProbe(t.Context(), &target, shared, Probe{"made-up", claims(boundary.SettleAnswer), NeedNetwork, run}, Options{Timeout: time.Minute})
			mu.Lock()
			defer mu.Unlock()
			if len(said) > 0 && !slices.Equal(said, []string{"silent: true", "silent: false"}) {
				t.Errorf("%s: %q", name, said)
			}
			if down || len(said) == 0 && !strings.Contains(name, "broker") {
				t.Errorf("%s: the broker is down: %v, the network: %q", name, down, said)
			}
		})
	}
}

func TestProbeThatNeedsWhatIsNotThere(t *testing.T) {
	for _, need := range []Need{NeedFault, NeedCut, NeedLoss, NeedNetwork, NeedRestart, NeedKill} {
		f := made(t.Context(), need, func(context.Context, *Bench) error { panic("run all the same") })
		if f.Verdict != report.NotVerifiable || f.Reason == "" {
			t.Errorf("need %d: %s: %s", need, f.Verdict, f.Reason)
		}
	}
}

func TestRunReportsATargetThatIsNotReached(t *testing.T) {
	r, err := Run(t.Context(), Target{Name: "gone", Start: func(context.Context) (*Instance, error) {
		return nil, errors.New("connection refused")
	}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Targets[0].Error != "connection refused" || r.Summary.Exit != report.ExitUnknown {
		t.Errorf("%+v, exit %d", r.Targets[0], r.Summary.Exit)
	}
}

func TestRunOptions(t *testing.T) {
	for _, globs := range [][]string{{"nothing.*"}, {"[bad"}} {
		if _, err := Run(t.Context(), nowhere(), Options{Claims: globs}); err == nil {
			t.Errorf("claims %q: no error", globs)
		}
	}
	var told []string
	r, err := Run(t.Context(), nowhere(), Options{Claims: []string{"publish.dedup.b*"}, Seed: 7,
		Progress: func(_ string, f report.Finding, done, of int) {
			told = append(told, f.Claim)
			if done != len(told) || of != 2 {
				t.Errorf("%d of %d", done, of)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Seed != 7 || len(told) != 2 || len(r.Targets[0].Findings) != 2 {
		t.Errorf("seed %d, told %v, findings %d", r.Seed, told, len(r.Targets[0].Findings))
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	target := nowhere()
	r, err := Run(ctx, target, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Summary.Interrupted || r.Summary.Exit != report.ExitUnknown || len(r.Targets[0].Findings) != len(catalogue) {
		t.Errorf("%+v", r.Summary)
	}
	// What wasn't asked is no error, whether the target had started or not.
	if r.Summary.Error != 0 || r.Summary.Unreached != 0 || r.Summary.NotVerifiable != len(catalogue) || r.Targets[0].Findings[0].Reason != "not asked: the run was interrupted" {
		t.Errorf("%+v", r.Summary)
	}
	target.Start = func(ctx context.Context) (*Instance, error) { return nil, context.Cause(ctx) }
	if r, err = Run(ctx, target, Options{}); err != nil || r.Summary.Error != 0 || r.Summary.Unreached != 0 || r.Summary.Exit != report.ExitUnknown || len(r.Targets[0].Findings) != len(catalogue) {
		t.Errorf("%+v, %v", r.Summary, err)
	}
}

func TestCatalogue(t *testing.T) {
	answered := map[boundary.Claim]int{}
	for _, p := range Probes() {
		for _, id := range p.Claims {
			answered[id]++
			if _, ok := Lookup(id); !ok {
				t.Errorf("probe %s answers %s, which is no claim", p.Name, id)
			}
		}
	}
	for _, c := range catalogue {
		if answered[c.ID] != 1 {
			t.Errorf("%s is answered by %d probes", c.ID, answered[c.ID])
		}
		if c.Hop < 1 || c.Hop > 3 || len(c.Answers) < 2 || !strings.HasSuffix(c.Question, "?") || c.Meaning == "" {
			t.Errorf("%s is incomplete: %+v", c.ID, c)
		}
	}
}

// TestAmounts: numbers read as people say them.
func TestAmounts(t *testing.T) {
	for n, want := range []string{"not at all, 0 copies", "once, 1 copy", "twice, 2 copies", "3 times, 3 copies"} {
		if got := often(n) + ", " + amount(n, "copy", "copies"); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// Long targets are asked first, and stand in the report where they were given.
func TestLongTargetsAreFirst(t *testing.T) {
	var asked []string
	var ts []Target
	for _, name := range []string{"a", "b", "C", "d", "E"} {
		ts = append(ts, Target{Name: name, Long: strings.ToUpper(name) == name, Start: func(context.Context) (*Instance, error) {
			asked = append(asked, name) // one at a time
			return nil, ErrAbsent
		}})
	}
	r, err := RunAll(t.Context(), ts, Options{Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(asked, ""); got != "CEabd" {
		t.Errorf("asked in the order %s", got)
	}
	for i := range ts {
		if r.Targets[i].Name != ts[i].Name {
			t.Errorf("%s stands in the place of %s", r.Targets[i].Name, ts[i].Name)
		}
	}
}
