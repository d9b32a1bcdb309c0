// Package targets wires the conformance suite to the brokers that this program
// can start or reach. The suite knows no emulator and the emulators know no
// suite; they meet here.
package targets

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
)

// Embedded returns the targets that run inside this program, or in child
// processes of it, with nothing installed. A program that uses them calls
// localstack.RunIfChild and conformance.RunIfWorker first thing in main.
func Embedded() []conformance.Target {
	return []conformance.Target{
		SQSStandard(), SQSFIFO(), SQSFIFOGroups(), PubSub(), PubSubExactlyOnce(), PubSubOrdered(), ServiceBusQueue(), ServiceBusSessions(),
		RabbitMQClassic(), RabbitMQQuorum(), RabbitMQStream(), NATS(), KafkaGroup(), KafkaShare(), Memory(),
	}
}

// Select returns those of ts whose name or broker matches one of the globs, in
// ts's order; all of them if there are none. A glob that matches nothing is an
// error that lists what there is.
func Select(ts []conformance.Target, globs []string) ([]conformance.Target, error) {
	if len(globs) == 0 {
		return ts, nil
	}
	chosen := make([]bool, len(ts))
	for _, glob := range globs {
		hit := false
		for i := range ts {
			name, err := path.Match(glob, ts[i].Name)
			if err != nil {
				return nil, fmt.Errorf("%q: %w: not a glob", glob, broker.ErrInvalid)
			}
			product, _ := path.Match(glob, ts[i].Broker)
			chosen[i] = chosen[i] || name || product
			hit = hit || name || product
		}
		if !hit {
			return nil, fmt.Errorf("%q: %w: there is no such broker; there are: %s", glob, broker.ErrInvalid, strings.Join(Names(ts), ", "))
		}
	}
	var out []conformance.Target
	for i := range ts {
		if chosen[i] {
			out = append(out, ts[i])
		}
	}
	return out, nil
}

// Names returns the names of ts and of their brokers, each once.
func Names(ts []conformance.Target) []string {
	var names []string
	for i := range ts {
		for _, n := range []string{ts[i].Name, ts[i].Broker} {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// Declared returns the targets whose boundaries can be looked up: the embedded ones,
// and those on real servers.
func Declared() []conformance.Target { return append(Embedded(), Local(nil)...) }

// Known returns all targets that have a name: those of [Declared], and the services of
// docker-compose.yml.
func Known() []conformance.Target { return append(Declared(), Compose()...) }

// Boundaries returns the declared boundary of each embedded target by its name.
func Boundaries() map[string]boundary.Boundary {
	m := map[string]boundary.Boundary{}
	for _, t := range Embedded() {
		m[t.Name] = t.Boundary
	}
	return m
}
