package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/onceline/onceline/broker"
)

func init() { broker.Register("kafka", open) }

// Dial opens a connection by a kafka:// URL, whose parameters the package
// comment lists. It is broker.Open for a program that wants this adapter only.
func Dial(ctx context.Context, rawURL string) (broker.Conn, error) {
	if !strings.HasPrefix(rawURL, "kafka://") {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "kafka: dial: want kafka://…")
	}
	return broker.Open(ctx, rawURL)
}

func open(ctx context.Context, u *url.URL) (broker.Conn, error) {
	o, err := parse(u)
	if err != nil {
		return nil, err
	}
	return New(ctx, o)
}

// parser reads a URL. No error of it shows the user's password, nor a value
// that could be one put in the wrong place.
type parser struct {
	host string
	q    url.Values
	err  error
}

func (p *parser) bad(name, why string) {
	if p.err == nil {
		p.err = broker.Errorf(broker.ErrInvalid, nil, "kafka://%s: %s: %s", p.host, name, why)
	}
}

// take returns a parameter and marks it as known.
func (p *parser) take(name string) string {
	vs := p.q[name]
	if len(vs) > 1 {
		p.bad(name, "given twice")
	}
	if len(vs) == 1 && vs[0] == "" {
		p.bad(name, "empty")
	}
	v := p.q.Get(name)
	delete(p.q, name)
	return v
}

// word returns the index of a parameter among the words; 0 where it is absent.
func (p *parser) word(name string, words ...string) int {
	v := p.take(name)
	if v == "" {
		return 0
	}
	i := slices.Index(words, v)
	if i < 0 {
		p.bad(name, "want one of "+strings.Join(words, ", "))
	}
	return max(0, i)
}

func (p *parser) flag(name string) bool { return p.word(name, "false", "true") == 1 }

func (p *parser) number(name string, most int) int {
	v := p.take(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		p.bad(name, "want a number from 1 to "+strconv.Itoa(most))
	}
	return n
}

func (p *parser) duration(name string) time.Duration {
	v := p.take(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		p.bad(name, "want a positive duration such as 10s")
	}
	return d
}

func parse(u *url.URL) (Options, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Options{}, broker.Errorf(broker.ErrInvalid, nil, "kafka://%s: unreadable parameters", u.Host)
	}
	p := &parser{host: u.Host, q: q}
	seeds, loopback := p.seeds(u.Host)
	if u.Path != "" && u.Path != "/" {
		p.bad("path", "topics and groups are named when they are opened")
	}
	o := Options{
		Mode:          Mode(p.word("mode", "group", "share")),
		Latest:        p.word("start", "earliest", "latest") == 1,
		Uncommitted:   p.word("isolation", "committed", "uncommitted") == 1,
		Instance:      p.take("instance"),
		NextGen:       p.word("protocol", "classic", "consumer") == 1,
		Session:       p.duration("session"),
		Partitions:    p.number("partitions", 1<<20),
		Replicas:      p.number("replicas", 1<<10),
		MaxDeliveries: p.number("max-deliveries", 1<<20),
		DeadLetter:    p.take("dead-letter"),
		Ordered:       p.flag("ordered"),
		Client:        []kgo.Opt{kgo.SeedBrokers(seeds...)},
	}
	if o.DeadLetter != "" && checkTopic(o.DeadLetter) != nil {
		p.bad("dead-letter", "not a topic's name")
	}
	if id := p.take("client-id"); id != "" {
		o.Client = append(o.Client, kgo.ClientID(id))
	}
	secure := p.tls(&o)
	p.sasl(&o, u.User, secure || loopback)
	if unknown := slices.Sorted(maps.Keys(p.q)); len(unknown) > 0 {
		p.bad(strings.Join(unknown, ", "), "unknown parameter")
	}
	if u.Fragment != "" {
		p.bad("fragment", "unknown")
	}
	return o, p.err
}

// seeds splits the host list and reports whether all of it is loopback.
func (p *parser) seeds(host string) (seeds []string, loopback bool) {
	loopback = true
	for h := range strings.SplitSeq(host, ",") {
		name, port, err := net.SplitHostPort(h)
		if err != nil {
			name, port = strings.Trim(h, "[]"), "9092"
		}
		if name == "" {
			p.bad("host", "empty")
		}
		ip := net.ParseIP(name)
		loopback = loopback && (name == "localhost" || ip != nil && ip.IsLoopback())
		seeds = append(seeds, net.JoinHostPort(name, port))
	}
	return seeds, loopback
}

func (p *parser) tls(o *Options) bool {
	on := p.flag("tls")
	ca, cert, key := p.take("ca"), p.take("cert"), p.take("key")
	if !on {
		if ca != "" || cert != "" || key != "" {
			p.bad("ca, cert, key", "need tls=true")
		}
		return false
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			p.bad("ca", "no readable certificates in that file")
		}
		cfg.RootCAs = pool
	}
	switch {
	case (cert == "") != (key == ""):
		p.bad("cert, key", "both or none")
	case cert != "":
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			p.bad("cert, key", "not a readable pair")
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	o.Client = append(o.Client, kgo.DialTLSConfig(cfg))
	return true
}

func (p *parser) sasl(o *Options, user *url.Userinfo, private bool) {
	way := p.word("sasl", "none", "plain", "scram-sha-256", "scram-sha-512")
	insecure := p.flag("insecure-credentials")
	if user == nil {
		if way != 0 {
			p.bad("sasl", "needs user:password@ before the host")
		}
		return
	}
	pass, _ := user.Password()
	if !private && !insecure {
		p.bad("credentials", "would travel in the clear: want tls=true, a loopback host, or insecure-credentials=true")
	}
	var m sasl.Mechanism
	switch way {
	case 1:
		m = plain.Auth{User: user.Username(), Pass: pass}.AsMechanism()
	case 2:
		m = scram.Auth{User: user.Username(), Pass: pass}.AsSha256Mechanism()
	case 3:
		m = scram.Auth{User: user.Username(), Pass: pass}.AsSha512Mechanism()
	default:
		p.bad("sasl", "credentials without a mechanism: want plain, scram-sha-256 or scram-sha-512")
		return
	}
	o.Client = append(o.Client, kgo.SASL(m))
}
