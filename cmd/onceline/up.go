package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/localstack"
)

// upFlags are the flags of up.
type upFlags struct {
	ports     map[string]string
	free      bool
	readyFile string
	json, env bool
	verbose   bool
}

func newUp() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up [BROKER…]",
		Short: "Run the brokers for anybody's code to connect to",
		Long: `Start the named brokers, or all of them, on 127.0.0.1, print how to connect, and run
until interrupted. NATS is the real server; Kafka, SQS, Pub/Sub, Service Bus and RabbitMQ
are models that speak the vendors' protocols to the vendors' own clients. All data are
gone at the end.

Each broker takes its usual port, or a free one where that is taken (sqs 9324, pubsub
8085, rabbitmq 5672 and 5552, nats 4222, kafka 9092; servicebus 5300, and 5672 where
RabbitMQ doesn't run); --port asks for one that must be had. --env prints lines for a
shell to evaluate, --json one object, and --ready-file writes that object when all
brokers are ready and removes it at the end.

Exit codes: 0 stopped by an interrupt; 2 a wrong command line; 3 a broker didn't start.`,
		Example: `  onceline up
  onceline up sqs kafka --port sqs=4566 -v
  onceline up --ready-file /tmp/onceline.json & …`,
		ValidArgsFunction: cobra.FixedCompletions(localstack.Names(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringToStringVar(&f.ports, "port", nil, "BROKER=PORT: a port that the broker must have")
	flags.BoolVar(&f.free, "free-ports", false, "take free ports instead of the usual ones")
	flags.StringVar(&f.readyFile, "ready-file", "", "write how to connect here when all are ready")
	flags.BoolVar(&f.env, "env", false, "print only the environment variables, as export lines")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print a line for each request to standard error")
	return cmd
}

// stopBound is how long the brokers may take to stop.
const stopBound = 15 * time.Second

func (f *upFlags) run(ctx context.Context, names []string, stdout, stderr io.Writer) error {
	ports, err := f.choose(names)
	if err != nil {
		return err
	}
	started := time.Now()
	stack, err := localstack.StartAt(ctx, ports)
	if err != nil {
		return runError{err}
	}
	err = f.serve(ctx, stack, time.Since(started), stdout, stderr)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopBound)
	defer cancel()
	if err := errors.Join(err, stack.Close(end)); err != nil {
		return runError{err}
	}
	fmt.Fprintln(stderr, "stopped")
	return nil
}

// choose returns the ports of the brokers to start.
func (f *upFlags) choose(names []string) (map[string][]int, error) {
	if len(names) == 0 {
		names = localstack.Names()
	}
	if f.readyFile != "" {
		// One that a killed run has left would name brokers that are gone.
		if err := os.Remove(f.readyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("--ready-file: %w", err)
		}
	}
	if f.json && f.env {
		return nil, errors.New("up: --json and --env: give one of the two")
	}
	ports := map[string][]int{}
	for _, name := range names {
		if !slices.Contains(localstack.Names(), name) {
			return nil, fmt.Errorf("up: %q: there is no such broker; there are: %s", name, strings.Join(localstack.Names(), ", "))
		}
		if ports[name] != nil {
			return nil, fmt.Errorf("up: %s is named twice", name)
		}
		ports[name] = []int{0}
	}
	asked := map[int]bool{}
	for name, text := range f.ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if ports[name] == nil || err != nil || port == 0 {
			return nil, fmt.Errorf("up: --port %s=%s: not one of the brokers to start, or not a port", name, text)
		}
		if asked[int(port)] {
			return nil, fmt.Errorf("up: --port %s=%s: another broker has that port", name, text)
		}
		ports[name] = []int{int(port)}
		asked[int(port)] = true
	}
	if !f.free {
		for _, name := range byPort {
			if ports[name] != nil && ports[name][0] == 0 {
				ports[name] = usual(name, asked)
			}
		}
	}
	return ports, nil
}

// byPort is the order in which brokers choose their usual ports: RabbitMQ's is also
// that of Service Bus's emulator, whose clients are told theirs anyway.
var byPort = []string{localstack.RabbitMQName, localstack.SQSName, localstack.PubSubName, localstack.ServiceBusName, localstack.NATSName, localstack.KafkaName}

// usualPorts are where clients look for each broker: what the vendors' servers and
// emulators take. The further ones are for parts of a broker that have a port of
// their own there, and share the first one here.
var usualPorts = map[string][]int{
	localstack.SQSName:        {9324},
	localstack.PubSubName:     {8085},
	localstack.ServiceBusName: {5672, 5300},
	localstack.RabbitMQName:   {5672, 5552},
	localstack.NATSName:       {4222},
	localstack.KafkaName:      {9092},
}

// usual returns the usual ports as far as they are free, the first one else 0.
func usual(name string, taken map[int]bool) []int {
	ports := make([]int, 0, 2)
	for i, port := range usualPorts[name] {
		switch {
		case !taken[port] && isFree(port):
			taken[port] = true
			ports = append(ports, port)
		case i == 0:
			ports = append(ports, 0)
		}
	}
	return ports
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

// serve tells how to connect and waits for the interrupt.
func (f *upFlags) serve(ctx context.Context, stack *localstack.Stack, took time.Duration, stdout, stderr io.Writer) error {
	var ends []endpoint
	width := 0
	for _, e := range stack.Emulators() {
		ends = append(ends, endpointOf(e))
		width = max(width, len(e.Name()))
	}
	if f.verbose {
		var mu sync.Mutex
		for _, e := range stack.Emulators() {
			e.Trace(func(line string) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(stderr, "%s %-*s %s\n", time.Now().Format("15:04:05.000"), width, e.Name(), line)
			})
		}
	}
	if err := f.print(stdout, ends); err != nil {
		return err
	}
	if f.readyFile != "" {
		if err := writeReady(f.readyFile, ends); err != nil {
			return err
		}
		defer os.Remove(f.readyFile)
	}
	fmt.Fprintf(stderr, "ready in %d ms; interrupt to stop\n", took.Milliseconds())
	<-ctx.Done()
	return nil
}

func (f *upFlags) print(w io.Writer, ends []endpoint) error {
	switch {
	case f.json:
		return encode(w, ends)
	case f.env:
		for _, e := range ends {
			for _, v := range e.Env {
				if _, err := fmt.Fprintf(w, "export %s=%s\n", v.Name, shellQuote(v.Value)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, e := range ends {
		kind := "model"
		if e.Real {
			kind = "the real server"
		}
		if _, err := fmt.Fprintf(w, "%s (%s)\n  onceline    %s\n", e.Broker, kind, e.URL); err != nil {
			return err
		}
		for _, v := range e.Env {
			if _, err := fmt.Fprintf(w, "  %s=%s\n", v.Name, shellQuote(v.Value)); err != nil {
				return err
			}
		}
	}
	return nil
}

func encode(w io.Writer, ends []endpoint) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"brokers": ends})
}

// writeReady writes the file in one step, so that nobody reads half of it.
func writeReady(path string, ends []endpoint) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".onceline-*")
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	err = errors.Join(encode(tmp, ends), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// shellQuote makes s one word of a shell.
func shellQuote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+=", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
