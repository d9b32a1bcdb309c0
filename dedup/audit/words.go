package audit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// plural is a number of things: "1 key", "2,000 keys".
func plural(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(n) + " " + thing
}

func has(n int64, thing string) string {
	if n == 1 {
		return plural(n, thing) + " has"
	}
	return plural(n, thing) + " have"
}

func was(n int64, thing string) string {
	if n == 1 {
		return plural(n, thing) + " was"
	}
	return plural(n, thing) + " were"
}

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// shown is a key as people read it: text as it is, its parts with a slash between them,
// and what isn't text in hexadecimal.
func shown(key []byte) string {
	s := strings.ReplaceAll(string(key), "\x1f", " / ")
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("0x%x", key)
	}
	return s
}

// short is a duration to three places or so.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return strconv.FormatFloat(d.Hours()/24, 'f', 1, 64) + " days"
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	default:
		d = d.Round(time.Microsecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
