package servicebus

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
)

// isoWish is a wish as the admin interface takes it, or nil where there is none.
func isoWish(d time.Duration) *string {
	if d <= 0 {
		return nil
	}
	s := formatDuration(d)
	return &s
}

// formatDuration writes an ISO 8601 duration in seconds: PT90S.
func formatDuration(d time.Duration) string {
	return "PT" + strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S"
}

// parseDuration reads an ISO 8601 duration of days, hours, minutes and seconds,
// as the service writes them. "For ever" (P10675199DT2H48M5.4775807S) and all
// that is longer than a time.Duration is the longest one.
func parseDuration(s string) (time.Duration, error) {
	bad := broker.Errorf(broker.ErrInvalid, nil, "duration %q", s)
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || rest == "" || strings.HasSuffix(rest, "T") {
		return 0, bad
	}
	units := map[byte]float64{'D': 86400}
	var seconds float64
	for rest != "" {
		if rest[0] == 'T' {
			units = map[byte]float64{'H': 3600, 'M': 60, 'S': 1}
			rest = rest[1:]
			continue
		}
		n := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
		if n <= 0 {
			return 0, bad
		}
		v, err := strconv.ParseFloat(rest[:n], 64)
		unit, known := units[rest[n]]
		if err != nil || !known {
			return 0, bad
		}
		seconds += v * unit
		rest = rest[n+1:]
	}
	if seconds >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
