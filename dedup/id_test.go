package dedup_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

func TestJoinID(t *testing.T) {
	for _, c := range []struct {
		version int
		parts   []string
		want    string
	}{
		{1, []string{"order-8812", "paid"}, "order-8812:paid:v1"},
		{12, []string{"a:b", "c"}, "a%3Ab:c:v12"},
		{1, []string{"a", "b:c"}, "a:b%3Ac:v1"},
		{1, []string{"100%", "ü \x00"}, "100%25:%C3%BC%20%00:v1"},
		{1, []string{"v1"}, "v1:v1"},
	} {
		got, err := dedup.JoinID(c.version, c.parts...)
		if got != c.want || err != nil {
			t.Errorf("%d %q: %q, %v; want %q", c.version, c.parts, got, err, c.want)
		}
		version, parts, err := dedup.SplitID(got)
		if version != c.version || !slices.Equal(parts, c.parts) || err != nil {
			t.Errorf("%q: %d %q, %v", got, version, parts, err)
		}
	}
	for _, bad := range [][]string{{}, {""}, {"a", ""}, {strings.Repeat("x", broker.MaxID)}} {
		if got, err := dedup.JoinID(1, bad...); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
	if _, err := dedup.JoinID(0, "a"); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("version 0: %v", err)
	}
	for _, bad := range []string{"", "a", "v1", "a:v0", "a:1", "a:v01", "a:b%3a:v1", "a%zz:v1", "a%4:v1", "a b:v1", ":v1", "a:v+1"} {
		if version, parts, err := dedup.SplitID(bad); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%q: %d %q, %v", bad, version, parts, err)
		}
	}
}

// FuzzJoinID: no two lists of parts make the same ID.
func FuzzJoinID(f *testing.F) {
	f.Add("a", "b", 1, "a:b")
	f.Add("%3A", ":", 2, "")
	f.Fuzz(func(t *testing.T, a, b string, version int, id string) {
		if joined, err := dedup.JoinID(version, a, b); err == nil {
			v, parts, err := dedup.SplitID(joined)
			if err != nil || v != version || !slices.Equal(parts, []string{a, b}) {
				t.Errorf("%q: %d %q, %v", joined, v, parts, err)
			}
		}
		if v, parts, err := dedup.SplitID(id); err == nil {
			if again, err := dedup.JoinID(v, parts...); again != id || err != nil {
				t.Errorf("%q became %q, %v", id, again, err)
			}
		}
	})
}
