package dedup_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

func marker(t *testing.T, k dedup.Key) dedup.Marker {
	t.Helper()
	m, err := k.Marker()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMarker: keys that differ have markers that differ, also where consumer and ID
// would run together, and the time counts to the minute.
func TestMarker(t *testing.T) {
	at := time.Date(2026, 3, 10, 12, 0, 59, 999e6, time.UTC)
	seen := map[dedup.Marker]dedup.Key{}
	for _, k := range []dedup.Key{
		{Consumer: "a", ID: "bc"}, {Consumer: "ab", ID: "c"}, {Consumer: "abc", ID: "a"}, {Consumer: "a", ID: "a"},
		{Consumer: "a", ID: "bc", At: at}, {Consumer: "a", ID: "bc", At: at.Add(time.Second)}, {Consumer: "a", ID: "bd", At: at},
	} {
		m := marker(t, k)
		if other, ok := seen[m]; ok {
			t.Errorf("%v and %v have the same marker", k, other)
		}
		seen[m] = k
		if again := marker(t, k); again != m {
			t.Errorf("%v has two markers", k)
		}
	}
	k := dedup.Key{Consumer: "a", ID: "b", At: at}
	zoned := k
	zoned.At = at.In(time.FixedZone("", 3600)).Truncate(time.Minute)
	if marker(t, k) != marker(t, zoned) {
		t.Error("the zone, or what is below a minute, makes a difference")
	}
	if got := marker(t, k).Minute(); !got.Equal(at.Truncate(time.Minute)) {
		t.Errorf("its minute is %v", got)
	}
	if _, err := (dedup.Key{Consumer: "a", ID: "b", At: time.Date(10137, 1, 1, 0, 0, 0, 0, time.UTC)}).Marker(); err == nil {
		t.Error("a time that doesn't fit is taken")
	}
	if long, err := (dedup.Key{Consumer: "a", ID: string(bytes.Repeat([]byte{'x'}, 5000))}).Marker(); err != nil || long == (dedup.Marker{}) {
		t.Errorf("a long ID: %v", err)
	}
}

// TestMarkerOrder: timed markers sort by time, behind those without.
func TestMarkerOrder(t *testing.T) {
	at := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	var ms []dedup.Marker
	for i := range 20 {
		ms = append(ms, marker(t, dedup.Key{Consumer: "c", ID: string(rune('a' + i)), At: at.Add(-time.Duration(i) * time.Hour)}))
	}
	ms = append(ms, marker(t, dedup.Key{Consumer: "c", ID: "x"}))
	slices.SortFunc(ms, dedup.Marker.Compare)
	if ms[0].Timed {
		t.Error("a timed marker comes first")
	}
	for i := 2; i < len(ms); i++ {
		if !ms[i-1].Minute().Before(ms[i].Minute()) {
			t.Errorf("%v before %v", ms[i-1].Minute(), ms[i].Minute())
		}
	}
	low := dedup.MinuteMarker(at)
	for _, m := range ms[1:] {
		if below := m.Compare(low) < 0; below != m.Minute().Before(at) {
			t.Errorf("%v below %v: %v", m.Minute(), at, below)
		}
	}
	if dedup.MinuteMarker(time.Unix(-5, 0)).Bytes != [16]byte{} {
		t.Error("before 1970 is not the lowest")
	}
}

func BenchmarkMarker(b *testing.B) {
	k := dedup.Key{Consumer: "billing", ID: "order-8812:paid:v1", At: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Marker(); err != nil {
			b.Fatal(err)
		}
	}
}
