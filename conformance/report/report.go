// Package report holds what a conformance run found, and shows it: as JSON
// with a stable schema (docs/report.schema.json), as Markdown, as JUnit XML
// for continuous integration, as one self-contained HTML page, and as a plain
// matrix for the terminal.
//
// A [Report] is data. The suite fills Targets and Mutants, calls
// [Report.Summarise] once, and hands it to a renderer. No renderer changes the
// report, and each renders the same report to the same bytes, so that two runs
// can be compared with diff.
//
// Everything inside a report is treated as untrusted by the renderers: message
// IDs, broker errors and reasons are written by probes, brokers and, in the
// worst case, by whoever sent the messages.
package report

import (
	"time"

	"github.com/onceline/onceline/conformance/history"
)

// Schema is the value of [Report.Schema] for the format this package writes.
// It changes only when a reader of the old format would misread the new one.
const Schema = "onceline.report/1"

// Report is the result of one conformance run: what was asked, of whom, and
// what came out.
type Report struct {
	// Schema is always the constant [Schema]; [WriteJSON] fills it in.
	Schema string `json:"schema"`
	// Toolkit is the version of Onceline that made the report.
	Toolkit string `json:"toolkit"`
	// Seed is what the run's random choices were drawn from.
	Seed uint64 `json:"seed"`
	// Started is when the run began; it is written in RFC 3339.
	Started time.Time `json:"started"`
	// Seconds is how long the whole run took.
	Seconds float64 `json:"seconds"`
	// Command is the command line that reproduces the run.
	Command string `json:"command"`
	// Claims is the catalogue as it stood, in its order; empty in older reports.
	Claims []Claim `json:"claims"`
	// Facts are those that findings cite, as far as the maker of the report knows
	// them; empty in older reports.
	Facts []Fact `json:"facts"`
	// Targets are the places the suite ran against, in the order of the run.
	Targets []Target `json:"targets"`
	// Mutants are the adapters broken on purpose; empty when none were tried.
	Mutants []Mutant `json:"mutants"`
	// Soaks are the runs on clusters whose nodes were killed and cut off; empty
	// when there was none.
	Soaks []Soak `json:"soaks"`
	// Databases are those that dedup stores can use and that were found; empty
	// when none was looked for.
	Databases []Database `json:"databases"`
	// Summary is computed by [Report.Summarise].
	Summary Summary `json:"summary"`
}

// Kind says where a target runs.
type Kind string

// The kinds of target.
const (
	// KindEmulator is an emulator or an embedded server in this process.
	KindEmulator Kind = "emulator"
	// KindLocal is a real broker on a machine of the user's own.
	KindLocal Kind = "local"
	// KindCloud is the vendor's service.
	KindCloud Kind = "cloud"
)

// Target is one place the suite ran against, with everything it found there.
type Target struct {
	// Name tells targets of one report apart, for example "nats-embedded".
	Name string `json:"name"`
	// Broker is the vendor's product, for example "nats" or "sqs-fifo".
	Broker string `json:"broker"`
	// Kind is where it runs.
	Kind Kind `json:"kind"`
	// Real is true when the vendor's own server answered, even if it ran
	// embedded in this process (NATS does).
	Real bool `json:"real"`
	// Like is the name of the embedded target of the same configuration, for
	// comparison; empty for none.
	Like string `json:"like"`
	// Of is the version and configuration that the answers are declared for.
	Of string `json:"of"`
	// Versions are those of the broker, the SDK, the emulator and so on.
	Versions map[string]string `json:"versions"`
	// Deviations are the differences from the real broker that are known, and
	// so do not fail. All that the target lists stand here, met or not.
	Deviations []Deviation `json:"deviations"`
	// Error says why the target could not be reached; empty if it was.
	Error string `json:"error"`
	// Absent says what this machine lacks to run it; empty if nothing. Then
	// nothing was asked, which is neither a pass nor a failure.
	Absent string `json:"absent"`
	// Findings are the answers, one for each claim.
	Findings []Finding `json:"findings"`
}

// Deviation is a known difference between an emulator and the broker it
// stands for.
type Deviation struct {
	// Claim is the ID of the claim that is answered differently.
	Claim string `json:"claim"`
	// Answer is what the emulator answers.
	Answer string `json:"answer"`
	// Reason is why, and for whom it matters.
	Reason string `json:"reason"`
}

// Basis says what an observation rests on.
type Basis string

// The bases.
const (
	// Measured means that the vendor's own code was asked.
	Measured Basis = "measured"
	// Modelled means that an emulator was asked, which encodes what the vendor
	// documents or what was recorded from it.
	Modelled Basis = "modelled"
)

// Finding is the answer of one target to one claim.
type Finding struct {
	// Claim is the claim's ID, for example "publish.dedup.window".
	Claim string `json:"claim"`
	// Hop is 1 (producer to broker), 2 (broker to consumer) or 3 (consumer to
	// effect store).
	Hop int `json:"hop"`
	// Question is the claim in words.
	Question string `json:"question"`
	// Declared is the adapter's answer; empty when it declares none.
	Declared string `json:"declared"`
	// Documented is the vendor's answer; empty when it gives none.
	Documented string `json:"documented"`
	// Source holds the fact IDs and URLs that Declared and Documented rest on.
	Source []string `json:"source"`
	// Note is what an application should know beside the declared answer.
	Note string `json:"note"`
	// Observed is what the probe found; empty when it found nothing.
	Observed string `json:"observed"`
	// Basis is what Observed rests on.
	Basis Basis `json:"basis"`
	// Verdict compares Observed with Declared.
	Verdict Verdict `json:"verdict"`
	// Reason explains the verdict in a sentence; for [NotApplicable],
	// [NotVerifiable], [Deviates] and [Failed] it is what a reader looks for.
	Reason string `json:"reason"`
	// Evidence is what the probe saw.
	Evidence Evidence `json:"evidence"`
	// Seconds is how long the probe took.
	Seconds float64 `json:"seconds"`
}

// Evidence is what a verdict can be checked against by a reader.
type Evidence struct {
	// Notes are sentences of the probe, in the order in which they were made.
	Notes []string `json:"notes"`
	// History holds what happened, in order of time.
	History []Event `json:"history"`
}

// Actor is the one an [Event] starts from. The sequence diagram draws a lane
// for each of the first four, and a mark across all lanes for the others.
type Actor = history.Actor

// The actors.
const (
	Producer = history.Producer
	Broker   = history.Broker
	Consumer = history.Consumer
	Store    = history.Store
	Fault    = history.Fault
	Clock    = history.Clock
)

// Event is one line of a probe's history; its times begin with the probe.
type Event = history.Event

// Mutant is an adapter broken on purpose, and whether the suite noticed.
type Mutant struct {
	// Name says what is broken, for example "swallows-ack-errors".
	Name string `json:"name"`
	// Layer is where it is broken, for example "adapter" or "broker".
	Layer string `json:"layer"`
	// Claim is the ID of the claim that has to kill it.
	Claim string `json:"claim"`
	// Killed is true when that claim found it out.
	Killed bool `json:"killed"`
	// Answer is what the claim's probe observed on the mutant.
	Answer string `json:"answer"`
	// Reason is why it was killed or why it lived.
	Reason string `json:"reason"`
}
