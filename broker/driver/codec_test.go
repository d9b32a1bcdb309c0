package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestHeadersRoundTrip(t *testing.T) {
	for want, hs := range map[string]broker.Headers{
		"":                           nil,
		"=":                          {{}},
		"a=1&b=&a=2":                 {{Key: "a", Value: "1"}, {Key: "b"}, {Key: "a", Value: "2"}},
		"x=%00%FF%0A&%C3%A9+%3D=%26": {{Key: "x", Value: "\x00\xff\n"}, {Key: "é =", Value: "&"}},
	} {
		text := driver.EncodeHeaders(hs)
		if text != want {
			t.Errorf("encoded %q, want %q", text, want)
		}
		got, err := driver.DecodeHeaders(text)
		if err != nil || !equal(got, hs) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, bad := range []string{"a", "a=1&", "&", "a=%", "%zz=1", "a=1&b"} {
		if hs, err := driver.DecodeHeaders(bad); !errors.Is(err, broker.ErrInvalid) || hs != nil {
			t.Errorf("%q: %q, %v", bad, hs, err)
		}
	}
}

func equal(a, b broker.Headers) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func FuzzDecodeHeaders(f *testing.F) {
	for _, s := range []string{"", "=", "a=1&b=2", "%", "a=%00+%2B", "a=b=c", strings.Repeat("&", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		hs, err := driver.DecodeHeaders(s)
		if err != nil {
			if !errors.Is(err, broker.ErrInvalid) || hs != nil {
				t.Fatalf("%q, %v", hs, err)
			}
			return
		}
		text := driver.EncodeHeaders(hs)
		if !driver.Printable(text) {
			t.Errorf("not printable: %q", text)
		}
		again, err := driver.DecodeHeaders(text)
		if err != nil || !equal(again, hs) {
			t.Errorf("%q became %q, %v", hs, again, err)
		}
	})
}

func FuzzHeadersRoundTrip(f *testing.F) {
	f.Add("a", "1", "", "\x00&=%+ ")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		hs := broker.Headers{{Key: k1, Value: v1}, {Key: k2, Value: v2}, {Key: k1, Value: v2}}
		got, err := driver.DecodeHeaders(driver.EncodeHeaders(hs))
		if err != nil || !equal(got, hs) {
			t.Errorf("%q became %q, %v", hs, got, err)
		}
	})
}

// plain takes letters and digits, as a narrow field of a broker does.
func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > 'z') && r != '-' })
}

func TestDedupID(t *testing.T) {
	natural := func(id, version string) bool {
		field, ok := driver.DedupID(&broker.Message{ID: id, Copy: version}, 128, plain)
		if ok != (field == id) || (!ok && len(field) != driver.HashedSize) {
			t.Errorf("%q, %q: %q, %v", id, version, field, ok)
		}
		return ok
	}
	for _, id := range []string{"order-17", strings.Repeat("x", 128)} {
		if !natural(id, "") {
			t.Errorf("%q was hashed", id)
		}
	}
	hashed, _ := driver.DedupID(&broker.Message{ID: "a b"}, 128, plain)
	for _, id := range []string{strings.Repeat("x", 129), "with space", "", hashed, "onceline-sha256-"} {
		if id != "" && natural(id, "") {
			t.Errorf("%q went through as it is", id)
		}
	}
	if natural("a", "1") {
		t.Error("a copy went through as the original")
	}
	if f, ok := driver.FieldKey("k", 10, plain); f != "k" || !ok {
		t.Error(f, ok)
	}
	if f, ok := driver.FieldKey("a key", 10, plain); len(f) != driver.HashedSize || ok {
		t.Error(f, ok)
	}
	if f, ok := driver.FieldKey(hashed, 1000, plain); f == hashed || ok {
		t.Error(f, ok)
	}
}

// Two pairs of ID and Copy share a field only if they are the same.
func FuzzDedupID(f *testing.F) {
	hashed, _ := driver.DedupID(&broker.Message{ID: "a b"}, 128, plain)
	f.Add("a", "b", "ab", "")
	f.Add("a", "", "", "a")
	f.Add("a", "bc", "ab", "c")
	f.Add("a b", "", hashed, "")
	f.Add("\x00\x00\x00\x00\x00\x00\x00\x01a", "", "a", "")
	f.Fuzz(func(t *testing.T, id1, copy1, id2, copy2 string) {
		a, _ := driver.DedupID(&broker.Message{ID: id1, Copy: copy1}, 128, plain)
		b, _ := driver.DedupID(&broker.Message{ID: id2, Copy: copy2}, 128, plain)
		if (a == b) != (id1 == id2 && copy1 == copy2) {
			t.Errorf("(%q, %q) and (%q, %q): %q and %q", id1, copy1, id2, copy2, a, b)
		}
		if len(a) > 128 || !plain(a) {
			t.Errorf("%q doesn't fit", a)
		}
		ka, _ := driver.FieldKey(id1, 128, plain)
		kb, _ := driver.FieldKey(id2, 128, plain)
		if (ka == kb) != (id1 == id2) || len(ka) > 128 || !plain(ka) {
			t.Errorf("keys %q and %q: %q and %q", id1, id2, ka, kb)
		}
	})
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]bool{"": true, "a b~!": true, " a": false, "a ": false, " ": false, "é": false, "\n": false, "\x7f": false, "a\x00": false} {
		if driver.Printable(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

func TestTimeHeader(t *testing.T) {
	at := time.UnixMilli(1764547200123)
	if got := driver.ParseTime(driver.FormatTime(at)); !got.Equal(at) {
		t.Errorf("%s", got)
	}
	for _, s := range []string{"", "x", "1.5", "99999999999999999999"} {
		if got := driver.ParseTime(s); !got.IsZero() {
			t.Errorf("%q: %s", s, got)
		}
	}
}
