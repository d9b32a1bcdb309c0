package conformance

import (
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// Options of a run. The zero value asks every claim.
type Options struct {
	// Claims are globs of claim IDs, as of path.Match; empty for all.
	Claims []string
	// Seed is where random choices come from; 0 takes a new one, which the
	// report names.
	Seed uint64
	// Timeout bounds each probe. Default 60 s.
	Timeout time.Duration
	// Parallel is how many probes run at a time on each server. Default 8:
	// most of a probe is waiting.
	Parallel int
	// Servers is how many servers are asked at a time, each of which a target has for
	// itself or shares, by Target.Server. Default all.
	Servers int
	// Progress is told of each finding as it is made; calls don't overlap.
	Progress func(target string, f report.Finding, done, of int)
	// Toolkit and Command are put into the report.
	Toolkit, Command string

	mutant  *Mutant       // what breaks the adapter; nil for nothing
	meeting *meeting      // of a probe with others; nil for none
	commits *sync.RWMutex // of the server
	nonce   uint64        // of this run: entities of an earlier one with the same seed may be left
}

// probes returns those that answer a claim which was asked for.
func (o Options) probes() ([]Probe, error) {
	for _, glob := range o.Claims {
		if _, err := path.Match(glob, ""); err != nil {
			return nil, fmt.Errorf("claims %q: %w", glob, err)
		}
	}
	var ps []Probe
	for _, p := range Probes() {
		if slices.ContainsFunc(p.Claims, o.wants) {
			ps = append(ps, p)
		}
	}
	if len(ps) == 0 {
		return nil, fmt.Errorf("claims %q: %w: no claim matches", o.Claims, broker.ErrInvalid)
	}
	return ps, nil
}

// catalogue returns those claims for the report that are asked for.
func (o Options) catalogue() []report.Claim {
	var cs []report.Claim
	for _, c := range catalogue {
		if o.wants(c.ID) {
			answers := make([]string, len(c.Answers))
			for i, a := range c.Answers {
				answers[i] = string(a)
			}
			cs = append(cs, report.Claim{Claim: string(c.ID), Hop: c.Hop, Question: c.Question, Answers: answers, Meaning: c.Meaning})
		}
	}
	return cs
}

func (o Options) wants(id boundary.Claim) bool {
	return len(o.Claims) == 0 || slices.ContainsFunc(o.Claims, func(glob string) bool {
		ok, _ := path.Match(glob, string(id)) // checked before
		return ok
	})
}
