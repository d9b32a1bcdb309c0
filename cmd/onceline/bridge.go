package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Where a bridge's two brokers are, out of the list of processes.
const (
	fromEnv = "ONCELINE_FROM"
	toEnv   = "ONCELINE_TO"
)

// bridgeFlags are the flags of bridge.
type bridgeFlags struct {
	from, fromTopic, subscription, to, topic string
	inbox, schema, name                      string
	migrate, ensure, ordered                 bool
	deadLetter                               string
	lease, window                            time.Duration

	copies, check, apart, plain  bool
	transactor                   string
	refused, late, ids           string
	fromPlace, toPlace           string
	noPath                       bool
	drain                        bool
	wait                         time.Duration
	count                        uint64
	patience, keep               time.Duration
	batch, lanes, inFlight, hops int
	timeout, every, within       time.Duration
	holdOff                      time.Duration
}

func newBridge() *cobra.Command {
	var f bridgeFlags
	cmd := &cobra.Command{
		Use:   "bridge --from URL --subscription SUBSCRIPTION --to URL --topic TOPIC [--inbox DATABASE]",
		Short: "Move messages from one broker to another",
		Long: `Move the messages of a subscription to a topic of another broker, with their IDs, keys,
headers, times and bodies. A message is acked when the far side has it; one that comes
again is published under the same ID. The order of each key is kept: a message that can't
be moved holds back the later ones of its key, and no others.

How often a message is at the far side depends on the pair, and is said at the start in
words (--check says it and ends):

  nothing else           exactly once, where the far side knows IDs over a producer's restart
                         (NATS, SQS FIFO, Service Bus with duplicate detection), as long as
                         the bridge is never away for longer than it remembers them
  --inbox DATABASE       the message is marked and kept in a database, in one transaction, and
                         a relay in this process sends it from there. Exactly once however
                         long the bridge was away, where the far side knows IDs; what it may
                         have forgotten is held ("onceline relay held")
                         In front of Kafka the relay sends in transactions: exactly once,
                         however long the bridge was away, for consumers that read committed
                         messages (PostgreSQL, MariaDB and SQLite)
  --inbox without --to   exactly once, in the database: for consumers, or "onceline relay"
  --copies               wherever the far side doesn't know IDs (RabbitMQ, Pub/Sub, SQS standard,
                         Kafka without --inbox), at least once: THERE WILL BE COPIES, as many as were
                         under way at each kill, and one for each answer that was lost. They have the
                         same ID, and the consumers behind it need an inbox. Without this flag such a
                         pair is refused, and with it a warning is printed at the start

Each message gets the header bridge-path with the places that it has left. One that has been
at the far side is acked and not sent, so bridges in both directions don't move it round and
round; give --from-topic, or places, for the two to know each other.

It runs until interrupted, or with --drain until the source has had nothing for --wait, then
ends what is under way, within --stop-within. Brokers and database may come and go while
it runs; all must be there at the start. A line of numbers is printed every --every.

Exit codes: 0 interrupted, drained, or --count is reached; 1 a message couldn't be moved, or was
dead-lettered, held or parked; 2 a wrong command line, or a pair that needs --copies; 3 a broker
or the database can't be reached.`,
		Example: `  onceline bridge --from rabbitmq://127.0.0.1/ --subscription orders/bridge --to nats://127.0.0.1:4222 --topic orders
  onceline bridge --from nats://127.0.0.1:4222 --subscription ORDERS/bridge --to kafka://127.0.0.1:9092 --topic orders \
    --inbox postgres://bridge@db/bridge --migrate
  onceline bridge --from kafka://127.0.0.1:9092 --subscription orders/bridge --topic orders --inbox orders.db --migrate --drain
  onceline bridge --check --from URL --subscription S --to URL --topic T`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	secret := func(to *string, name, env, usage string) {
		flags.StringVar(to, name, os.Getenv(env), usage+" (default $"+env+")")
		flags.Lookup(name).DefValue = "" // it may hold a password
	}
	secret(&f.from, "from", fromEnv, "the broker to take from, as 'onceline help urls' says")
	flags.StringVar(&f.subscription, "subscription", "", "the subscription to take from, by the name that the broker's adapter gives it")
	flags.StringVar(&f.fromTopic, "from-topic", "", "its topic, for --ensure and for the place in bridge-path")
	secret(&f.to, "to", toEnv, "the broker to move to; none with --inbox: they stay in the database")
	flags.StringVar(&f.topic, "topic", "", "the topic to move to, also that of the outbox")
	secret(&f.inbox, "inbox", outboxEnv, "a database for inbox and outbox: postgres://…, mariadb://… or a SQLite file")
	flags.StringVar(&f.schema, "schema", "", "the schema of its tables, in PostgreSQL (default public)")
	flags.BoolVar(&f.migrate, "migrate", false, "make the tables that are missing")
	flags.StringVar(&f.name, "name", "", "the bridge's name in the inbox's marks: keep it (default \"bridge SUBSCRIPTION > TOPIC\")")
	flags.DurationVar(&f.keep, "keep", 7*24*time.Hour, "how long the inbox keeps marks: longer than a message may come again")
	flags.BoolVar(&f.ensure, "ensure", false, "create subscription and topics if they don't exist")
	flags.StringVar(&f.deadLetter, "dead-letter", "", "topic for dead-lettered messages at the source, with --ensure")
	flags.DurationVar(&f.lease, "lease", 0, "how long a delivery may be held, with --ensure (default the broker's)")
	flags.BoolVar(&f.ordered, "ordered", false, "keep the order of each key over redelivery, with --ensure")
	flags.DurationVar(&f.window, "window", 0, "how long the far side remembers an ID (default what it says); with --ensure it is made so")
	flags.BoolVar(&f.copies, "copies", false, "go on although the far side may get copies: the consumers behind it have an inbox")
	flags.BoolVar(&f.plain, "no-transactions", false, "with --inbox: send without transactions also where the far side has them")
	flags.StringVar(&f.transactor, "transactor", "", "the ID of the relay's transactions, which nobody else uses (default \"onceline NAME\")")
	flags.BoolVar(&f.check, "check", false, "say what the pair gives, and move nothing")
	flags.BoolVar(&f.apart, "apart", false, "one message of a key in a publish, also where the far side keeps the order of more")
	flags.StringVar(&f.refused, "refused", "stop", "what becomes of a message that the far side never takes: stop or dead-letter")
	flags.StringVar(&f.late, "late", "stop", "of one that it may have stored and forgotten: stop, dead-letter or send (perhaps a second copy)")
	flags.StringVar(&f.ids, "ids", "", "position: messages of others, without an ID, get one made of their place at the source")
	flags.StringVar(&f.fromPlace, "from-place", "", "the source's name in bridge-path (default scheme, host and --from-topic)")
	flags.StringVar(&f.toPlace, "to-place", "", "the far side's name in bridge-path (default scheme, host and --topic)")
	flags.BoolVar(&f.noPath, "no-path", false, "add no bridge-path, and look for no loop")
	flags.IntVar(&f.hops, "hops", 16, "how many places a message may have left; more are refused")
	flags.DurationVar(&f.holdOff, "hold-off", 0, "wait so long at the start: more than the source's lease lets what a killed bridge held come again first")
	flags.BoolVar(&f.drain, "drain", false, "end when the source has had nothing for --wait")
	flags.DurationVar(&f.wait, "wait", 0, "with --drain (default 5s; for Kafka 50s, so long may a member that was killed hold messages)")
	flags.Uint64Var(&f.count, "count", 0, "end after this many messages (default no limit)")
	flags.DurationVar(&f.patience, "patience", 0, "give up when messages are in hand and none could be moved for so long (default never; with --drain 2m)")
	flags.IntVar(&f.batch, "batch", 100, "messages in a publish, at most")
	flags.IntVar(&f.lanes, "lanes", 0, "publishes under way at a time (default 4, with --inbox 2)")
	flags.IntVar(&f.inFlight, "in-flight", 0, "messages that are held at a time, at most (default 2 * batch * lanes)")
	flags.DurationVar(&f.timeout, "publish-timeout", 10*time.Second, "bound of one publish")
	flags.DurationVar(&f.every, "every", 10*time.Second, "print numbers this often; 0 only at the end")
	flags.DurationVar(&f.within, "stop-within", 15*time.Second, "bound of the end")
	return cmd
}

// policies are the values of --refused and --late.
var policies = map[string]bridge.Policy{"stop": bridge.Stop, "dead-letter": bridge.DeadLetter, "send": bridge.Send}

func (f *bridgeFlags) verify() error {
	_, late := policies[f.late]
	switch {
	case f.from == "":
		return fmt.Errorf("bridge: no source: give --from, or set %s", fromEnv)
	case f.subscription == "":
		return errors.New("bridge: --subscription is missing")
	case f.topic == "":
		return errors.New("bridge: --topic is missing")
	case f.to == "" && f.inbox == "":
		return fmt.Errorf("bridge: nowhere to move to: give --to or --inbox, or set %s", toEnv)
	case f.refused != "stop" && f.refused != "dead-letter":
		return fmt.Errorf("bridge: --refused %q is not stop or dead-letter", f.refused)
	case !late:
		return fmt.Errorf("bridge: --late %q is not stop, dead-letter or send", f.late)
	case f.late != "stop" && f.inbox != "":
		return errors.New("bridge: --late is for a bridge without --inbox, which holds late messages in the outbox")
	case f.ids != "" && f.ids != "position":
		return fmt.Errorf("bridge: --ids %q is not position", f.ids)
	case f.ensure && f.fromTopic == "":
		return errors.New("bridge: --ensure needs --from-topic")
	case !f.ensure && (f.deadLetter != "" || f.lease != 0 || f.ordered):
		return errors.New("bridge: --dead-letter, --lease and --ordered are for --ensure")
	case f.inbox == "" && (f.schema != "" || f.migrate || f.name != ""):
		return errors.New("bridge: --schema, --migrate and --name are for --inbox")
	case (f.inbox == "" || f.to == "") && (f.plain || f.transactor != ""):
		return errors.New("bridge: --no-transactions and --transactor are for --inbox with --to")
	case f.plain && f.transactor != "":
		return errors.New("bridge: --transactor names transactions, which --no-transactions switches off")
	case f.wait != 0 && !f.drain:
		return errors.New("bridge: --wait is for --drain")
	case f.noPath && (f.fromPlace != "" || f.toPlace != ""):
		return errors.New("bridge: --from-place and --to-place are for bridge-path, which --no-path switches off")
	case f.batch < 1 || f.lanes < 0 || f.inFlight < 0 || f.hops < 1 || f.lanes > dedup.OutboxLanes:
		return fmt.Errorf("bridge: --batch and --hops must be above zero, --in-flight not under it, --lanes from 1 to %d", dedup.OutboxLanes)
	case f.wait < 0 || f.holdOff < 0 || f.patience < 0 || f.window < 0 || f.every < 0 || f.timeout <= 0 || f.within <= 0 || f.keep <= 0:
		return errors.New("bridge: --publish-timeout, --stop-within and --keep must be above zero, other durations not under it")
	}
	f.fill()
	return nil
}

// fill sets what depends on other flags.
func (f *bridgeFlags) fill() {
	if f.wait == 0 {
		if f.wait = 5 * time.Second; strings.HasPrefix(f.from, "kafka://") {
			f.wait = 50 * time.Second
		}
	}
	if f.drain && f.patience == 0 {
		f.patience = max(2*time.Minute, 2*f.wait)
	}
	if f.lanes == 0 {
		if f.lanes = 4; f.inbox != "" {
			f.lanes = 2
		}
	}
	if f.name == "" {
		f.name = "bridge " + f.subscription + " > " + f.topic
	}
	if f.transactor == "" {
		f.transactor = "onceline " + f.name
	}
	if f.fromPlace == "" {
		f.fromPlace = placeOf(f.from, or(f.fromTopic, f.subscription))
	}
	if f.toPlace == "" {
		if f.toPlace = placeOf(f.to, f.topic); f.to == "" {
			f.toPlace = "outbox/" + f.name
		}
	}
	if f.noPath {
		f.fromPlace, f.toPlace = "", ""
	}
}

// placeOf is a broker's topic as bridge-path names it: no user, no password and no
// parameters.
func placeOf(raw, topic string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + "://" + strings.TrimSuffix(rest[strings.LastIndexByte(rest, '@')+1:], "/") + "/" + topic
}

// options are those of the engine.
func (f *bridgeFlags) options(together bool, hook func(error)) bridge.Options {
	o := bridge.Options{Batch: f.batch, Lanes: f.lanes, InFlight: f.inFlight, Together: together && !f.apart,
		Window: f.window, Late: policies[f.late], Refused: policies[f.refused], From: f.fromPlace, To: f.toPlace, Hops: f.hops,
		HoldOff: f.holdOff, Count: f.count, Patience: f.patience, PublishTimeout: f.timeout, StopTimeout: f.within, ErrorHook: hook}
	if f.drain {
		o.Idle = f.wait
	}
	if f.ids == "position" {
		o.ID = bridge.FromPosition(or(f.fromTopic, f.subscription))
	}
	return o
}

// source and target are what --ensure creates.
func (f *bridgeFlags) source() broker.Entity {
	return broker.Entity{Topic: f.fromTopic, Subscription: f.subscription, DeadLetter: f.deadLetter, Lease: f.lease, Ordered: f.ordered}
}

func (f *bridgeFlags) target() broker.Entity { return broker.Entity{Topic: f.topic, Window: f.window} }
