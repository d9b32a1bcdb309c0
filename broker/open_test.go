package broker_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
)

// opened is what the opener of scheme "test" was called with last.
var opened *url.URL

var errOpened = errors.New("opened")

func init() {
	broker.Register("test", func(_ context.Context, u *url.URL) (broker.Conn, error) {
		opened = u
		return nil, errOpened
	})
}

func TestOpen(t *testing.T) {
	tests := []struct {
		url              string
		host, user, path string
		query            string
		invalid          bool
	}{
		{url: "test://127.0.0.1:4222", host: "127.0.0.1:4222"},
		{url: "TEST://h", host: "h"},
		{url: "test://", host: ""},
		{url: "test:///vhost?a=1", path: "/vhost", query: "a=1"},
		{url: "test://?region=eu", query: "region=eu"},
		{url: "test://a:1,b:2,c/x?y=z,w", host: "a:1,b:2,c", path: "/x", query: "y=z,w"},
		{url: "test://[::1]:1,[fe80::2%25eth0]:2", host: "[::1]:1,[fe80::2%25eth0]:2"},
		{url: "test://u:p%2Fw,x@a:1,b:2/v", host: "a:1,b:2", user: "u:p%2Fw,x", path: "/v"},
		{url: "test://a@b:c@h:1", host: "h:1", user: "a%40b:c"},
		{url: "test://a%40b:c@h:1", host: "h:1", user: "a%40b:c"},
		{url: "test://a:1,,b:2", invalid: true},
		{url: "test://,a:1", invalid: true},
		{url: "test://a:1,", invalid: true},
		{url: "test://a:x,b:2", invalid: true},
		{url: "test://a:1,b:x", invalid: true},
		{url: "test://[::1,b:2", invalid: true},
		{url: "test://h/%zz", invalid: true},
		{url: "://h", invalid: true},
		{url: "no scheme", invalid: true},
		{url: "", invalid: true},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			opened = nil
			_, err := broker.Open(t.Context(), tt.url)
			if tt.invalid {
				if !errors.Is(err, broker.ErrInvalid) || opened != nil {
					t.Errorf("%v, %v", err, opened)
				}
				return
			}
			if err != errOpened {
				t.Fatal(err)
			}
			if opened.Scheme != "test" || opened.Host != tt.host || opened.User.String() != tt.user || opened.Path != tt.path || opened.RawQuery != tt.query {
				t.Errorf("host %q, user %q, path %q, query %q", opened.Host, opened.User.String(), opened.Path, opened.RawQuery)
			}
		})
	}
}

func TestOpenUnknownScheme(t *testing.T) {
	_, err := broker.Open(t.Context(), "testt://user:hunter2@host/path?token=hunter3")
	if !errors.Is(err, broker.ErrInvalid) {
		t.Fatal(err)
	}
	for _, want := range []string{`"testt"`, "test", "mem"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q doesn't name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "hunter") {
		t.Errorf("%q shows a secret", err)
	}
	if s := broker.Schemes(); !slices.IsSorted(s) || !slices.Contains(s, "test") || !slices.Contains(s, "mem") {
		t.Errorf("schemes %q", s)
	}
}

func TestRegisterPanics(t *testing.T) {
	open := func(context.Context, *url.URL) (broker.Conn, error) { return nil, nil }
	for name, register := range map[string]func(){
		"taken":      func() { broker.Register("test", open) },
		"upper case": func() { broker.Register("Test2", open) },
		"empty":      func() { broker.Register("", open) },
		"no opener":  func() { broker.Register("test3", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: taken without a panic", name)
				}
			}()
			register()
		}()
	}
}

// No error of Open shows a password or a parameter, however broken the URL is,
// and a URL that is taken keeps the hosts it came with.
func FuzzOpen(f *testing.F) {
	f.Add("test", "hunter2secret", "a:1,b:2", "/x?token=y")
	f.Add("nope", "p/w", "[::1]:1", "")
	f.Add("test", "1?34@", "h", "/%zz")
	f.Add("nope", "12/34", "h", "")
	f.Add("test", "a b\x00", ",", "#")
	f.Fuzz(func(t *testing.T, scheme, secret, hosts, rest string) {
		if strings.Contains(scheme, ":") {
			return // the secret would be another part of the URL
		}
		opened = nil
		_, err := broker.Open(t.Context(), scheme+"://user:"+secret+"@"+hosts+rest)
		if err == nil {
			t.Fatal("opened nothing without an error")
		}
		if err == errOpened {
			if opened.Scheme != "test" {
				t.Errorf("scheme %q", opened.Scheme)
			}
			if i := strings.IndexAny(hosts+rest, "/?#"); !strings.ContainsAny(secret, "@/?#") && !strings.Contains(hosts+rest, "@") {
				want := hosts + rest
				if i >= 0 {
					want = want[:i]
				}
				if opened.Host != want {
					t.Errorf("hosts %q became %q", want, opened.Host)
				}
			}
			return
		}
		if !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%v", err)
		}
		// What it may say is fixed but for the scheme.
		known := "open: invalid: not a URL"
		unknown := "open: invalid: no adapter for scheme "
		if msg := err.Error(); msg != known && !strings.HasPrefix(msg, unknown) {
			t.Errorf("%q", msg)
		} else if len(secret) > 8 && !strings.Contains(known+unknown+strings.ToLower(scheme)+strings.Join(broker.Schemes(), ", "), secret) && strings.Contains(msg, secret) {
			t.Errorf("%q shows %q", msg, secret)
		}
	})
}
