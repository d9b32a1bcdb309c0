package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

// urlEnv names a broker's URL where no --url does.
const urlEnv = "ONCELINE_URL"

// pubFlags are the flags of pub.
type pubFlags struct {
	url, topic, idPrefix, key string
	headers                   []string
	json, ensure, quiet       bool
	attempts, batch           int
	window                    time.Duration
	timeout                   time.Duration
}

func newPub() *cobra.Command {
	var f pubFlags
	cmd := &cobra.Command{
		Use:   "pub --url URL --topic TOPIC [BODY…]",
		Short: "Publish messages from the shell",
		Long: `Publish each BODY, or each line of standard input, as a message, and print a line for
each receipt: what the broker said, the dedup ID, and where it keeps the message.

The ID of line n is PREFIX-n. The prefix is new for each run and printed; give it as
--id-prefix to send the same input again without storing it twice, within the
broker's window. With --json each line is an object as "onceline sub --json" prints
it: {"id": "1", "key": "k", "body": "text", "headers": [{"key": "a", "value": "b"}]};
body_base64 and value_base64 hold what is not text.

A reader of the receipts that ends early ends it too; --quiet prints fewer of them.
Order is kept. A message without an answer is tried again with the same ID as long
as that can't make a second copy; on a broker that doesn't deduplicate it is not.

Exit codes: 0 the broker has all messages; 1 one was refused or its outcome is unknown;
2 a wrong command line or input; 3 the broker can't be reached or was interrupted.`,
		Example: `  onceline pub --url nats://127.0.0.1:4222 --topic orders --ensure 'first order'
  seq 1000 | onceline pub --url kafka://127.0.0.1:9092 --topic orders --quiet
  onceline sub --url URL1 --subscription A --json | onceline pub --url URL2 --topic B --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", os.Getenv(urlEnv), "the broker, as 'onceline help urls' says (default $"+urlEnv+")")
	flags.Lookup("url").DefValue = "" // it may hold a password
	flags.StringVar(&f.topic, "topic", "", "the topic, by the name that the broker's adapter gives it")
	flags.StringVar(&f.idPrefix, "id-prefix", "", "begin the IDs of lines and bodies with this (default a new one, printed)")
	flags.StringVar(&f.key, "key", "", "ordering key of the messages that have none of their own")
	flags.StringArrayVar(&f.headers, "header", nil, "add NAME=VALUE to each message")
	flags.BoolVar(&f.json, "json", false, "read JSON objects, and print receipts as JSON")
	flags.BoolVar(&f.ensure, "ensure", false, "create the topic if it doesn't exist")
	flags.DurationVar(&f.window, "window", 0, "dedup window to create it with, with --ensure (default the broker's)")
	flags.BoolVar(&f.quiet, "quiet", false, "print only what the broker didn't take")
	flags.IntVar(&f.attempts, "attempts", 10, "how often a message is tried")
	flags.IntVar(&f.batch, "batch", 100, "messages in a request, at most")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "bound of each message, from its reading to its receipt")
	return cmd
}

// maxLine bounds what one line of input may hold, bytes.
const maxLine = 64 << 20

func (f *pubFlags) run(ctx context.Context, bodies []string, stdin io.Reader, stdout, stderr io.Writer) error {
	headers, err := f.check()
	if err != nil {
		return err
	}
	c, err := connect(ctx, f.url)
	if err != nil {
		return err
	}
	defer closing(c, stderr)
	if f.ensure {
		if err := c.Ensure(ctx, broker.Entity{Topic: f.topic, Window: f.window}); err != nil {
			return failure(err)
		}
	}
	raw, err := c.OpenPublisher(ctx, f.topic)
	if err != nil {
		return failure(err)
	}
	// The time of a message that is read may be that of an event long ago: the
	// window counts from now.
	policy := broker.RetryPolicy{Attempts: f.attempts, EventTime: f.json}
	p := broker.NewBatcher(broker.Retry(raw, policy), 1, f.batch)
	out := &receipts{to: stdout, json: f.json, quiet: f.quiet}
	if !f.json && f.idPrefix == "" {
		f.idPrefix = newPrefix()
		fmt.Fprintf(stderr, "IDs begin with %s: --id-prefix %s sends the same input again\n", f.idPrefix, f.idPrefix)
	}
	var input lines = &texts{bodies: bodies}
	if len(bodies) == 0 {
		input = readLines(ctx, stdin)
	}
	bad := f.publish(ctx, p, input, headers, out)
	// Close waits for the receipts, each of which has its own bound.
	end, done := context.WithTimeout(context.WithoutCancel(ctx), f.timeout+5*time.Second)
	defer done()
	err = p.Close(end)
	switch failed, writeErr := out.end(); {
	case bad != nil:
		return bad
	case ctx.Err() != nil:
		return runError{context.Cause(ctx)}
	case writeErr != nil:
		return runError{writeErr}
	case err != nil:
		return runError{err}
	case failed > 0:
		return exitCode(report.ExitDifference)
	}
	return nil
}

func (f *pubFlags) check() (broker.Headers, error) {
	switch {
	case f.topic == "":
		return nil, errors.New("pub: --topic is missing")
	case f.attempts < 1 || f.batch < 1 || f.timeout <= 0:
		return nil, errors.New("pub: --attempts, --batch and --timeout must be above zero")
	case f.window != 0 && !f.ensure:
		return nil, errors.New("pub: --window is for --ensure")
	case f.json && f.idPrefix != "":
		return nil, errors.New("pub: --id-prefix is for lines, with --json each message has its own id")
	}
	var headers broker.Headers
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("pub: --header %q is not NAME=VALUE", h)
		}
		headers = append(headers, broker.Header{Key: name, Value: value})
	}
	return headers, nil
}

// publish hands each message to p and returns what was wrong with the input.
func (f *pubFlags) publish(ctx context.Context, p *broker.Batcher, input lines, headers broker.Headers, out *receipts) error {
	for n := 1; ; n++ {
		text, err := input.next(ctx)
		if err == io.EOF || ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("pub: line %d: %w", n, err)
		}
		m := broker.Message{ID: fmt.Sprintf("%s-%d", f.idPrefix, n), Body: text}
		if f.json {
			if len(bytes.TrimSpace(text)) == 0 {
				continue
			}
			if m, err = parseLine(text); err != nil {
				return fmt.Errorf("pub: line %d: %w", n, err)
			}
		}
		if m.Key == "" {
			m.Key = f.key
		}
		m.Headers = append(m.Headers, headers...)
		bound, cancel := context.WithTimeout(ctx, f.timeout)
		id := m.ID
		p.Go(bound, m, func(r broker.Receipt) { cancel(); out.add(id, r) })
	}
}

func newPrefix() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// receipts prints what the broker said, one line for each message.
type receipts struct {
	to          io.Writer
	json, quiet bool

	mu     sync.Mutex
	failed int
	err    error // of the first line that couldn't be written
}

func (o *receipts) add(id string, r broker.Receipt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.Verdict.OK() {
		o.failed++
	} else if o.quiet {
		return
	}
	var err error
	if o.json {
		said := struct {
			Verdict  string `json:"verdict"`
			ID       string `json:"id"`
			Position string `json:"position,omitempty"`
			Error    string `json:"error,omitempty"`
		}{Verdict: r.Verdict.String(), ID: id, Position: place(r.Position)}
		if r.Err != nil {
			said.Error = r.Err.Error()
		}
		err = json.NewEncoder(o.to).Encode(said)
	} else {
		s := fmt.Sprintf("%-9s %s", r.Verdict, id)
		if at := place(r.Position); at != "" {
			s += " at " + at
		}
		if r.Err != nil {
			s += ": " + r.Err.Error()
		}
		_, err = fmt.Fprintln(o.to, s)
	}
	if o.err == nil {
		o.err = err
	}
}

func (o *receipts) end() (failed int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed, o.err
}

// lines is where messages come from. next returns io.EOF after the last one.
type lines interface {
	next(ctx context.Context) ([]byte, error)
}

// texts are the bodies of the command line.
type texts struct{ bodies []string }

func (t *texts) next(context.Context) ([]byte, error) {
	if len(t.bodies) == 0 {
		return nil, io.EOF
	}
	first := t.bodies[0]
	t.bodies = t.bodies[1:]
	return []byte(first), nil
}

// reader are the lines of an input that may block for ever. They are read in a
// goroutine, so that an interrupt ends the program; it stays behind where the
// input never ends.
type reader struct{ read chan textOrError }

type textOrError struct {
	text []byte
	err  error
}

func readLines(ctx context.Context, from io.Reader) *reader {
	r := &reader{make(chan textOrError)}
	go func() {
		for in := bufio.NewReader(from); ; {
			text, err := readLine(in)
			if err == io.EOF && len(text) > 0 {
				err = nil // the last line has no newline; the next read says EOF again
			}
			select {
			case r.read <- textOrError{text, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

// readLine reads up to a newline, which it cuts off.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, fmt.Errorf("over %d bytes: %w", maxLine, broker.ErrTooLarge)
		case err == bufio.ErrBufferFull:
			continue
		case err != nil:
			return text, err
		}
		return bytes.TrimSuffix(text, []byte("\n")), nil
	}
}

func (r *reader) next(ctx context.Context) ([]byte, error) {
	select {
	case t := <-r.read:
		return t.text, t.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// failure is the error of a call on the broker, told apart from one of the command
// line: a name that can't be, a wish that can't be met or clashes with what exists.
func failure(err error) error {
	if errors.Is(err, broker.ErrInvalid) || errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrConflict) {
		return err
	}
	return runError{err}
}

// connect opens a broker by URL.
func connect(ctx context.Context, url string) (broker.Conn, error) {
	if url == "" {
		return nil, fmt.Errorf("no broker: give --url, or set %s", urlEnv)
	}
	c, err := broker.Open(ctx, url)
	if err != nil {
		return nil, failure(err)
	}
	return c, nil
}

// closeBound is how long a connection may take to close.
const closeBound = 10 * time.Second

func closing(c broker.Conn, stderr io.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		fmt.Fprintf(stderr, "onceline: close: %v\n", err)
	}
}
