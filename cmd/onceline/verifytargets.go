package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// targets are those that the flags choose.
func (f *verifyFlags) targets(p targets.Progress) ([]conformance.Target, error) {
	ways := 0
	for _, given := range []bool{f.local, f.compose, len(f.urls) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return nil, fmt.Errorf("--local starts brokers, --compose asks those of docker-compose.yml and --target names one that runs: give one of them")
	case len(f.urls) > 0 && f.soak:
		return nil, fmt.Errorf("--soak is for clusters that are started here: --target names a broker that runs")
	case f.local:
		all := targets.Local(p)
		if f.embedded {
			all = append(targets.Embedded(), all...)
		}
		ts, err := targets.Select(all, f.brokers)
		return ts, f.elsewhere(err)
	case f.compose:
		ts, err := targets.Select(targets.Compose(), f.brokers)
		return ts, f.elsewhere(err)
	case len(f.urls) == 0 && f.soak:
		return nil, nil
	case len(f.urls) == 0:
		ts, err := targets.Select(targets.Embedded(), f.brokers)
		return ts, f.elsewhere(err)
	case len(f.brokers) > 0:
		return nil, fmt.Errorf("--broker chooses among the embedded ones and --target names another: give one of the two")
	}
	var ts []conformance.Target
	for _, u := range f.urls {
		t, err := byURL(u, f.costs, p)
		if err != nil {
			return nil, err
		}
		if n := len(ts); n > 0 {
			t.Name += "-" + strconv.Itoa(n+1)
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// elsewhere adds to the error of a name that isn't among the targets with which flag it
// would be.
func (f *verifyFlags) elsewhere(err error) error {
	if err == nil {
		return nil
	}
	for _, b := range f.brokers {
		for _, set := range []struct {
			flag string
			of   []conformance.Target
			used bool
		}{{"--local", targets.Local(nil), f.local}, {"--compose", targets.Compose(), f.compose}, {"neither --local nor --compose", targets.Embedded(), !f.compose}} {
			if _, missing := targets.Select(set.of, []string{b}); missing == nil && !set.used {
				return fmt.Errorf("--broker %s is asked with %s", b, set.flag)
			}
		}
	}
	return err
}

// byURL is the target of a URL. One that leads to where it may cost money needs
// consent.
func byURL(url string, consent bool, p targets.Progress) (conformance.Target, error) {
	t, err := targets.ByURL(url)
	if err != nil || !targets.Public(url) {
		return t, err
	}
	if !consent {
		return conformance.Target{}, fmt.Errorf("%s\nAgree to it with --yes-this-costs-money", targets.Bill(url))
	}
	return targets.Cloud(url, func(line string) { p("cloud", line) })
}

// clusters are those that are soaked.
func (f *verifyFlags) clusters(p targets.Progress) ([]conformance.Cluster, error) {
	if !f.soak {
		if f.disturbance != "" {
			return nil, fmt.Errorf("--disturbance chooses among what --soak does: give both")
		}
		return nil, nil
	}
	all := targets.Clusters(p)
	if f.disturbance != "" && !slices.ContainsFunc(all, func(c conformance.Cluster) bool { return slices.Contains(c.Disturbances, f.disturbance) }) {
		return nil, fmt.Errorf("--disturbance %q: there are %q", f.disturbance, all[0].Disturbances)
	}
	cs, err := conformance.SelectClusters(all, f.brokers)
	if err == nil && len(cs) == 0 && !f.local {
		err = fmt.Errorf("--soak: no cluster matches %s", strings.Join(f.brokers, ", "))
	}
	return cs, err
}

// split parts the targets into those that run in this program or run already, and
// those whose servers are started.
func split(ts []conformance.Target) (embedded, servers []conformance.Target) {
	for _, t := range ts {
		if t.Kind == report.KindLocal && t.StartWithin > 0 {
			servers = append(servers, t)
		} else {
			embedded = append(embedded, t)
		}
	}
	return embedded, servers
}

// databases are what was found of them, for the report.
func databases(found []targets.Database) []report.Database {
	out := make([]report.Database, 0, len(found))
	for _, d := range found {
		r := report.Database{Name: d.Name, Version: d.Version, Absent: d.Absent, Kept: d.Kept}
		if d.Err != nil {
			r.Error = d.Err.Error()
		}
		out = append(out, r)
	}
	return out
}

// command is the line that repeats the run. URLs stay out of it: they may hold
// a password.
func (f *verifyFlags) command(seed uint64) string {
	s := "onceline verify"
	for _, flag := range []struct {
		given bool
		name  string
	}{{f.local, "local"}, {f.soak, "soak"}, {f.compose, "compose"}} {
		if flag.given {
			s += " --" + flag.name
		}
	}
	if !f.embedded {
		s += " --embedded=false"
	}
	if f.disturbance != "" {
		s += " --disturbance " + quote(f.disturbance)
	}
	for _, b := range f.brokers {
		s += " --broker " + quote(b)
	}
	for range f.urls {
		s += " --target URL"
	}
	if f.costs {
		s += " --yes-this-costs-money"
	}
	for _, c := range f.claims {
		s += " --claim " + quote(c)
	}
	return fmt.Sprintf("%s --seed %d", s, seed)
}

func quote(s string) string {
	if strings.ContainsAny(s, "*?[ ") {
		return "'" + s + "'"
	}
	return s
}
