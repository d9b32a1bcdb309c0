package report_test

import (
	"fmt"
	"os"

	"github.com/onceline/onceline/conformance/report"
)

func ExampleMatrix() {
	r := &report.Report{
		Seed: 7, Seconds: 1.5,
		Targets: []report.Target{{
			Name: "nats-embedded", Broker: "nats", Kind: report.KindEmulator, Real: true,
			Findings: []report.Finding{
				{Claim: "publish.dedup.window", Hop: 1, Declared: "2m0s", Observed: "2m0s", Basis: report.Measured, Verdict: report.Equal},
				{Claim: "settle.late.outcome", Hop: 2, Declared: "lease lost", Observed: "confirmed", Basis: report.Measured,
					Verdict: report.Weaker, Reason: "the server took a stale ack"},
			},
		}},
	}
	r.Summarise()
	if err := report.Matrix(os.Stdout, r, report.MatrixOptions{Width: 80}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// CLAIM                   nats-embedded
	// Hop 1: producer → broker
	//   publish.dedup.window  ✓ 2m0s
	// Hop 2: broker → consumer
	//   settle.late.outcome   ▼ confirmed
	//
	// ▼ weaker than declared  settle.late.outcome on nats-embedded
	//     declared lease lost → observed confirmed (measured)
	//     the server took a stale ack
	//
	// 1 answer weaker than declared.
	// 2 claims × 1 target, 1 equal, 1 weaker; seed 7, 1.500 s, exit 1
}

func ExampleReport_Summarise() {
	r := &report.Report{Targets: []report.Target{{Name: "gone", Error: "connection refused"}}}
	s := r.Summarise()
	fmt.Println(s.Unreached, s.Exit == report.ExitUnknown)
	// Output: 1 true
}

func ExampleVerdict_Class() {
	for _, v := range report.Verdicts() {
		fmt.Println(v.Symbol(), v, v.Class())
	}
	// Output:
	// ✓ equal passed
	// – not-applicable uncounted
	// ? not-verifiable uncounted
	// ≈ deviation passed
	// ! error broken
	// ▲ stronger differs
	// ▼ weaker differs
}
