package localstack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// RunIfChild does nothing in an ordinary process. In a process that [StartChild]
// has started it runs the emulator until its input ends or it gets SIGTERM, and
// does not return: it exits the process. Call it first thing in main, and in
// TestMain of packages whose tests use StartChild.
func RunIfChild() {
	if os.Getenv(childEnv) == "" {
		return
	}
	if err := runChild(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childStop bounds a child's clean stop.
const childStop = 30 * time.Second

func runChild(in io.Reader, out io.Writer) error {
	// An interrupt at the terminal goes to the parent too, which ends us.
	signal.Ignore(os.Interrupt)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)

	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("localstack: child: reading its configuration: %w", err)
	}
	var spec childSpec
	if err := json.Unmarshal(line, &spec); err != nil {
		return fmt.Errorf("localstack: child: reading its configuration: %w", err)
	}
	b, err := childBroker(spec)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := b.start(ctx, spec.Dir); err != nil {
		return err
	}
	ports, err := json.Marshal(childPorts(b))
	if err == nil {
		_, err = fmt.Fprintf(out, "%s%s\n", childReady, ports)
	}
	if err == nil {
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = io.Copy(io.Discard, r) }()
		select {
		case <-ended:
		case <-term:
		}
	}
	ctx, cancel := context.WithTimeout(ctx, childStop)
	defer cancel()
	return errors.Join(err, b.stop(ctx))
}

func childBroker(spec childSpec) (backend, error) {
	switch spec.Name {
	case NATSName:
		return &natsBackend{config: spec.NATS}, nil
	case natsNodeName:
		return &natsNodeBackend{node: spec.NATSNode}, nil
	case KafkaName:
		b := &kafkaBackend{config: spec.Kafka, overTCP: true}
		b.groups.init(spec.Kafka.GroupConfigs)
		return b, nil
	}
	return nil, fmt.Errorf("localstack: child: no emulator named %q", spec.Name)
}

func childPorts(b backend) []int {
	switch b := b.(type) {
	case *natsBackend:
		return []int{int(b.port.Load())}
	case *natsNodeBackend:
		return []int{b.node.Client}
	case *kafkaBackend:
		return b.ports
	}
	return nil
}
