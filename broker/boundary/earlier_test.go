package boundary

import "testing"

func TestAtAnOlderRelease(t *testing.T) {
	b := Boundary{Of: "5", Entries: map[Claim]Entry{
		SettleAnswer: {Declared: Confirmed}, SettleStale: {Declared: Refused}, SettleFinal: {Declared: Final},
	}, Earlier: []Earlier{
		{Before: "3.10", Of: "3.9", Entries: map[Claim]Entry{SettleAnswer: {Declared: None}}},
		{Before: "4.0", Of: "3.x", Entries: map[Claim]Entry{SettleAnswer: {Declared: Sent}, SettleStale: {Declared: TakesEffect}}},
	}}
	for _, c := range []struct {
		version, of   string
		answer, stale Answer
	}{
		{"", "5", Confirmed, Refused},
		{"model of 3.x", "5", Confirmed, Refused},
		{"4.0", "5", Confirmed, Refused},
		{"4.0.1-rc.1", "5", Confirmed, Refused},
		{"10.0", "5", Confirmed, Refused},
		{"3.13.7", "3.x", Sent, TakesEffect},
		{"3.10.8+debian", "3.x", Sent, TakesEffect},
		{"3.9.29", "3.9", None, TakesEffect},
		{"3", "3.9", None, TakesEffect},
	} {
		at := b.At(c.version)
		if at.Of != c.of || at.Entries[SettleAnswer].Declared != c.answer || at.Entries[SettleStale].Declared != c.stale || at.Entries[SettleFinal].Declared != Final {
			t.Errorf("At(%q) = %q %q %q, want %q %q %q", c.version, at.Of, at.Entries[SettleAnswer].Declared, at.Entries[SettleStale].Declared, c.of, c.answer, c.stale)
		}
	}
	if b.Entries[SettleAnswer].Declared != Confirmed || len(b.Earlier) != 2 || b.Earlier[0].Before != "3.10" {
		t.Error("At changed the boundary that it was asked of")
	}
}
