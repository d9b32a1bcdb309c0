package boundary

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Earlier is what was declared otherwise of releases before a certain one.
type Earlier struct {
	Before  string          // the first release for which Entries no longer hold: "4.0"
	Of      string          // the version and configuration that Entries were found on; replaces Boundary.Of
	Entries map[Claim]Entry // in place of the boundary's own
	Limits  map[LimitName]Limit
}

// At returns the boundary as it is declared for a release, given by its number:
// "3.10.8". Where that is older than what Earlier names, those entries take the
// place of the boundary's own, the oldest's before all others. A version that
// isn't a number ("model of 4.x", "") is taken for the newest.
func (b Boundary) At(version string) Boundary {
	earlier := b.Earlier
	b.Earlier = nil
	at := release(version)
	if at == nil {
		return b
	}
	earlier = slices.SortedFunc(slices.Values(earlier), func(x, y Earlier) int {
		return slices.Compare(release(y.Before), release(x.Before))
	})
	b.Entries, b.Limits = maps.Clone(b.Entries), maps.Clone(b.Limits)
	for _, e := range earlier {
		if slices.Compare(at, release(e.Before)) >= 0 {
			break
		}
		b.Of = cmp.Or(e.Of, b.Of)
		maps.Copy(b.Entries, e.Entries)
		maps.Copy(b.Limits, e.Limits)
	}
	return b
}

// release returns the numbers of a version, nil if it doesn't begin with one.
// What follows the numbers, such as "-rc.1", doesn't count.
func release(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		digits := len(part) - len(strings.TrimLeft(part, "0123456789"))
		n, err := strconv.Atoi(part[:digits])
		if err != nil {
			break
		}
		numbers = append(numbers, n)
		if digits < len(part) {
			break
		}
	}
	return numbers
}
