package servicebus

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// unlimited is the longest time that the service knows, which stands for no limit.
const unlimited = "P10675199DT2H48M5.4775807S"

// parseDuration reads a duration of ISO 8601 in days and less. What is as long as
// no limit is 0.
func parseDuration(s string) (time.Duration, error) {
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || rest == "" || rest == "T" {
		return 0, fmt.Errorf("%q is no duration of ISO 8601", s)
	}
	days, clock, timed := strings.Cut(rest, "T")
	total := 0.0
	add := func(part *string, unit string, seconds float64) bool {
		number, after, ok := strings.Cut(*part, unit)
		if !ok {
			return true
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || n < 0 {
			return false
		}
		*part = after
		total += n * seconds
		return true
	}
	ok = add(&days, "W", 7*86400) && add(&days, "D", 86400)
	if timed {
		ok = ok && add(&clock, "H", 3600) && add(&clock, "M", 60) && add(&clock, "S", 1)
	}
	if !ok || days != "" || clock != "" {
		return 0, fmt.Errorf("%q is no duration of ISO 8601 in days and less", s)
	}
	if total >= forever.Seconds() {
		return 0, nil
	}
	return time.Duration(total * float64(time.Second)).Round(time.Microsecond), nil
}

// formatDuration writes a duration of ISO 8601; 0 as unlimited.
func formatDuration(d time.Duration) string {
	if d <= 0 {
		return unlimited
	}
	var b strings.Builder
	b.WriteByte('P')
	if days := d / (24 * time.Hour); days > 0 {
		fmt.Fprintf(&b, "%dD", days)
		d -= days * 24 * time.Hour
	}
	if d == 0 {
		return b.String()
	}
	b.WriteByte('T')
	if h := d / time.Hour; h > 0 {
		fmt.Fprintf(&b, "%dH", h)
		d -= h * time.Hour
	}
	if m := d / time.Minute; m > 0 {
		fmt.Fprintf(&b, "%dM", m)
		d -= m * time.Minute
	}
	if d > 0 {
		b.WriteString(strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S")
	}
	return b.String()
}
