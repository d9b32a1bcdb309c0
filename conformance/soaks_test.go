package conformance

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/internal/bubbletest"
)

// madeUp is a cluster on which nobody can connect, so that each soak fails at once.
type madeUp struct {
	started, closed int
	struck          []string
	startErr        error
	sole            []string
}

func (m *madeUp) cluster(targets ...string) Cluster {
	c := Cluster{Disturbances: []string{"killed", "cut off"}}
	for _, name := range targets {
		c.Targets = append(c.Targets, Target{Name: name, Broker: "made-up-" + name[:1], Real: true})
	}
	c.Start = func(context.Context) (*ClusterInstance, error) {
		if m.startErr != nil {
			return nil, m.startErr
		}
		m.started++
		run := &ClusterInstance{Sole: m.sole, Close: func(context.Context) error { m.closed++; return nil }}
		for range targets {
			run.Instances = append(run.Instances, &Instance{
				Open: func(context.Context) (broker.Conn, error) { return nil, broker.ErrUnauthorized }})
		}
		run.Disturbances = func(target int) []Disturbance {
			m.struck = append(m.struck, targets[target])
			return []Disturbance{{Name: "killed"}, {Name: "cut off"}}
		}
		return run, nil
	}
	return c
}

func names(ss []report.Soak) string {
	var all []string
	for _, s := range ss {
		all = append(all, fmt.Sprintf("%s %s %s", s.Target, s.Disturbance, s.Verdict))
	}
	return strings.Join(all, ", ")
}

func TestSoaksRunAllOnAll(t *testing.T) {
	var m, other madeUp
	got := Soaks(t.Context(), []Cluster{m.cluster("a", "b"), other.cluster("c")}, SoakOptions{})
	want := "a killed error, b killed error, a cut off error, b cut off error, c killed error, c cut off error"
	if names(got) != want {
		t.Errorf("%s, want %s", names(got), want)
	}
	for _, s := range got {
		if !strings.Contains(s.Reason, "unauthorized") || s.Basis != report.Measured || s.Broker == "" {
			t.Errorf("%+v", s)
		}
	}
	if m.started != 1 || m.closed != 1 || other.closed != 1 {
		t.Errorf("started %d, closed %d and %d times", m.started, m.closed, other.closed)
	}
}

func TestSoaksOfOneDisturbance(t *testing.T) {
	var m madeUp
	if got := names(Soaks(t.Context(), []Cluster{m.cluster("a")}, SoakOptions{Disturbance: "cut off"})); got != "a cut off error" {
		t.Error(got)
	}
	if got := names(Soaks(t.Context(), []Cluster{m.cluster("a")}, SoakOptions{Disturbance: "drowned"})); got != "" || m.started != 1 {
		t.Errorf("%q, started %d times", got, m.started)
	}
}

func TestSoaksOfWhatDoesNotStart(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: there is no Java", ErrAbsent), "a killed not-applicable, a cut off not-applicable"},
		{errors.New("the port is taken"), "a killed error, a cut off error"},
	} {
		m := madeUp{startErr: c.err}
		got := Soaks(t.Context(), []Cluster{m.cluster("a")}, SoakOptions{})
		if names(got) != c.want || got[0].Reason != c.err.Error() {
			t.Errorf("%v: %s: %s", c.err, names(got), got[0].Reason)
		}
	}
}

func TestSoaksEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var m madeUp
	c := m.cluster("a")
	start := c.Start
	c.Start = func(ctx context.Context) (*ClusterInstance, error) { cancel(); return start(ctx) }
	got := Soaks(ctx, []Cluster{c}, SoakOptions{})
	if names(got) != "a killed not-verifiable, a cut off not-verifiable" || m.closed != 1 || len(m.struck) != 0 {
		t.Errorf("%s; closed %d times, struck %v", names(got), m.closed, m.struck)
	}
}

func TestASoleConsumerIsNoted(t *testing.T) {
	m := madeUp{sole: []string{"", "no turns"}}
	for i, s := range Soaks(t.Context(), []Cluster{m.cluster("a", "b")}, SoakOptions{Disturbance: "killed"}) {
		if got := slices.Contains(s.Notes, "no turns"); got != (i == 1) {
			t.Errorf("%s: notes %v", s.Target, s.Notes)
		}
	}
}

func TestSelectClusters(t *testing.T) {
	var m, other madeUp
	m.sole = []string{"", "no turns"}
	all := []Cluster{m.cluster("a1", "a2"), other.cluster("b1")}
	for _, c := range []struct {
		globs []string
		want  string
	}{
		{nil, "a1 a2 b1"}, {[]string{"a2"}, "a2"}, {[]string{"made-up-b", "a1"}, "a1 b1"}, {[]string{"*2", "a*"}, "a1 a2"}, {[]string{"z"}, ""},
	} {
		chosen, err := SelectClusters(all, c.globs)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range chosen {
			for _, target := range k.Targets {
				got = append(got, target.Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %v, want %s", c.globs, got, c.want)
		}
	}
	if _, err := SelectClusters(all, []string{"["}); !errors.Is(err, path.ErrBadPattern) {
		t.Errorf("a bad glob: %v", err)
	}
	// What is left out is not run, and the rest is what it was.
	chosen, err := SelectClusters(all, []string{"a2"})
	if err != nil {
		t.Fatal(err)
	}
	got := Soaks(t.Context(), chosen, SoakOptions{Disturbance: "killed"})
	if names(got) != "a2 killed error" || strings.Join(m.struck, " ") != "a2" || !slices.Contains(got[0].Notes, "no turns") {
		t.Errorf("%s, struck %v, notes %v", names(got), m.struck, got[0].Notes)
	}
}

// The load lasts as long as the disturbance, and what is left then goes at once.
func TestSoakPace(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := newSoakPace(100, 9*soakLead)
		for range 25 {
			p.wait(t.Context())
		}
		select {
		case <-p.begun:
			t.Error("begun before a quarter was taken")
		default:
		}
		for range 70 {
			if !p.wait(t.Context()) {
				t.Fatal("the context ended")
			}
		}
		<-p.begun
		// 90 batches at 100 ms, the first at once, and then five at four times that.
		if time.Until(p.next) > 4*p.every || p.every != soakLead/10 {
			t.Errorf("a batch each %v", p.every)
		}
		p.open()
		p.open()
		ctx, cancel := context.WithCancel(t.Context())
		before := p.next
		for range 5 {
			p.wait(ctx)
		}
		if now := time.Now(); now.After(before) {
			t.Errorf("%v after the end of the disturbance the rest was still held up", now.Sub(before))
		}
		cancel()
		held := newSoakPace(2, soakLead)
		held.wait(ctx) // the first goes at once
		if held.wait(ctx) {
			t.Error("waits on though the context has ended")
		}
	})
}
