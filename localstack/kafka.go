package localstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaConfig is what a Kafka model is started with. It travels to child
// processes as JSON.
type kafkaConfig struct {
	Brokers      int
	Configs      map[string]string
	GroupConfigs map[string]map[string]string
	Topics       []kafkaTopics
	User         string
	Password     string
	SyncWrites   bool
	Advertise    []string // the proxies' host:port, one for each broker
	Ports        []int    // where a child listens; nil until its first start

	dataDir string
	front   int // the first proxy's port; 0 for a free one
}

type kafkaTopics struct {
	Partitions int32
	Names      []string
}

// KafkaOption changes how [StartKafka] and [StartChild] run Kafka.
type KafkaOption func(*kafkaConfig)

// KafkaBrokers sets the number of brokers of the cluster; the default is 1. They
// share one state: there is no replication that could lag or fail.
func KafkaBrokers(n int) KafkaOption {
	return func(c *kafkaConfig) { c.Brokers = n }
}

// KafkaConfig sets broker configs, over the defaults of this package:
//
//	group.consumer.heartbeat.interval.ms       100
//	group.share.heartbeat.interval.ms          100
//	share.record.lock.sweep.interval.ms        100 (when expired locks are looked for)
//	max.incremental.fetch.session.cache.slots  0   (each Fetch names its topics, for Fault.Match)
//
// Others worth setting are group.share.record.lock.duration.ms (default 30000),
// group.share.delivery.count.limit (5), group.consumer.session.timeout.ms
// (45000), message.max.bytes (1048588) and transaction.max.timeout.ms (900000).
// A config that was changed over the wire wins after a restart.
func KafkaConfig(configs map[string]string) KafkaOption {
	return func(c *kafkaConfig) { maps.Copy(c.Configs, configs) }
}

// KafkaGroupConfig sets configs of one consumer or share group by their names
// without the prefix "group.": share.auto.offset.reset=earliest,
// share.record.lock.duration.ms. Clients can set the same over the wire with
// IncrementalAlterConfigs, and what they set through the proxy is kept too.
func KafkaGroupConfig(group string, configs map[string]string) KafkaOption {
	return func(c *kafkaConfig) {
		if c.GroupConfigs[group] == nil {
			c.GroupConfigs[group] = map[string]string{}
		}
		maps.Copy(c.GroupConfigs[group], configs)
	}
}

// KafkaTopics creates topics at the first start. Topics that clients create
// without a number of partitions get one.
func KafkaTopics(partitions int32, names ...string) KafkaOption {
	return func(c *kafkaConfig) { c.Topics = append(c.Topics, kafkaTopics{partitions, names}) }
}

// KafkaUser makes the brokers ask for this user and password by SASL, with the
// mechanism SCRAM-SHA-256. By default they ask for nothing.
func KafkaUser(user, password string) KafkaOption {
	return func(c *kafkaConfig) { c.User, c.Password = user, password }
}

// KafkaSyncWrites makes the brokers sync each batch to the disk before they
// answer. By default they leave it to the operating system, as Kafka does.
func KafkaSyncWrites() KafkaOption {
	return func(c *kafkaConfig) { c.SyncWrites = true }
}

// KafkaPort makes clients connect to this port of 127.0.0.1 for the first broker,
// and to the ports after it for further ones. By default they are free ones.
func KafkaPort(port int) KafkaOption {
	return func(c *kafkaConfig) { c.front = port }
}

// KafkaDataDir keeps the data in dir, and leaves it there at Close. By default
// they are in a temporary directory that Close removes.
func KafkaDataDir(dir string) KafkaOption {
	return func(c *kafkaConfig) { c.dataDir = dir }
}

func newKafkaConfig(options []KafkaOption) (kafkaConfig, error) {
	c := kafkaConfig{
		Brokers: 1,
		Configs: map[string]string{
			"group.consumer.heartbeat.interval.ms":      "100",
			"group.share.heartbeat.interval.ms":         "100",
			"share.record.lock.sweep.interval.ms":       "100",
			"max.incremental.fetch.session.cache.slots": "0",
		},
		GroupConfigs: map[string]map[string]string{},
	}
	for _, o := range options {
		o(&c)
	}
	if c.Brokers < 1 {
		return c, fmt.Errorf("localstack: kafka: %d brokers, must be at least 1", c.Brokers)
	}
	return c, nil
}

// Kafka is the in-process model of a Kafka cluster. It implements [Emulator].
type Kafka struct {
	*emulator
	backend *kafkaBackend
}

// StartKafka runs a model of Kafka 4.x in this process and returns when it is
// ready for clients: idempotent and transactional producers, classic consumer
// groups, KIP-848 groups and share groups. Client connections are plain TCP.
//
// A restart keeps topics, records, offsets, producer state and share groups.
// After [Emulator.Kill] topics, records and committed offsets are there, while
// producer sequences and the state of share groups (acks, delivery counts) are
// gone: there this model is weaker than Kafka.
func StartKafka(ctx context.Context, options ...KafkaOption) (*Kafka, error) {
	c, err := newKafkaConfig(options)
	if err != nil {
		return nil, err
	}
	b := &kafkaBackend{config: c}
	b.groups.init(c.GroupConfigs)
	e, addrs, err := newKafka(b, &b.groups, c.Brokers, c.front, b.dial)
	if err != nil {
		return nil, err
	}
	b.config.Advertise = addrs
	if err := e.open(ctx, c.dataDir); err != nil {
		return nil, err
	}
	return &Kafka{e, b}, nil
}

// SetGroupConfigs sets configs of one group now and at each later start, as
// [KafkaGroupConfig] does for the first.
func (k *Kafka) SetGroupConfigs(group string, configs map[string]string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.usable(); err != nil {
		return err
	}
	k.backend.groups.set(group, configs)
	k.backend.cluster.SetGroupConfigs(group, configs)
	return nil
}

// newKafka makes an emulator with proxies for Kafka in front of any backend, and
// returns their addresses, which the brokers have to advertise.
func newKafka(b backend, groups *groupConfigs, brokers, port int, dial func(broker int, client net.Addr) (net.Conn, error)) (*emulator, []string, error) {
	e := &emulator{
		name: KafkaName, backend: b, checkAPI: checkKafkaAPI,
		versions: map[string]string{"kfake": kfakeVersion(), "kafka": "model of 4.x"},
	}
	var addrs []string
	m, modelled := b.(*kafkaBackend)
	front := &kafkaFront{faults: &e.faults, trace: &e.trace, groups: groups, asks: modelled && m.config.User != "", brokers: func() []string { return addrs }}
	for n := range brokers {
		p, err := listen(port,
			func(client net.Addr) (net.Conn, error) { return dial(n, client) },
			func(l *link) { serveKafka(l, front) },
		)
		if err != nil {
			return nil, nil, errors.Join(err, e.Close(context.Background()))
		}
		e.proxies = append(e.proxies, p)
		addrs = append(addrs, p.addr())
		if port != 0 {
			port++
		}
	}
	return e, addrs, nil
}

func checkKafkaAPI(api string) error {
	for key := range int16(kmsg.MaxKey + 1) {
		if kmsg.NameForKey(key) == api {
			return nil
		}
	}
	return fmt.Errorf("localstack: fault: kafka has no API %q", api)
}

// kfakeVersion returns the version of the module. A test binary has no list of
// modules, but the names of its source files hold their module's version.
func kfakeVersion() string {
	const path = "github.com/twmb/franz-go/pkg/kfake"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	file, _ := runtime.FuncForPC(reflect.ValueOf(kfake.NewCluster).Pointer()).FileLine(0)
	if _, after, ok := strings.Cut(filepath.ToSlash(file), "pkg/kfake@"); ok {
		version, _, _ := strings.Cut(after, "/")
		return version
	}
	return "unknown"
}

// kafkaBackend runs kfake in this process. Unless it is overTCP, its listeners
// have no socket: the proxies reach it through pipes, which saves a hop.
type kafkaBackend struct {
	config  kafkaConfig
	overTCP bool

	groups  groupConfigs
	cluster *kfake.Cluster

	mu     sync.Mutex
	inside []*pipeListener
	ports  []int
}

// kafkaMinSession is the shortest session timeout that a classic group may ask
// for. Kafka's default of 6 s would make probes of a lost member slow.
const kafkaMinSession = 100 * time.Millisecond

func (b *kafkaBackend) start(ctx context.Context, dir string) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("localstack: kafka: %w", err)
	}
	c := b.config
	opts := []kfake.Opt{
		kfake.NumBrokers(c.Brokers), kfake.DefaultNumPartitions(1), kfake.ListenFn(b.listen),
		kfake.GroupMinSessionTimeout(kafkaMinSession), kfake.BrokerConfigs(c.Configs), kfake.DataDir(dir),
	}
	for _, t := range c.Topics {
		opts = append(opts, kfake.SeedTopics(t.Partitions, t.Names...))
	}
	if c.User != "" {
		opts = append(opts, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", c.User, c.Password))
	}
	if c.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
	}
	b.mu.Lock()
	b.inside, b.ports = nil, nil
	b.mu.Unlock()
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return fmt.Errorf("localstack: kafka: %w", err)
	}
	for group, configs := range b.groups.snapshot() {
		cluster.SetGroupConfigs(group, configs)
	}
	b.cluster = cluster
	return nil
}

// listen opens the listener of the next broker; kfake asks for them in order. It
// says the proxy's address to be its own, for that is what kfake advertises.
func (b *kafkaBackend) listen(network, _ string) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.inside) + len(b.ports)
	front, err := net.ResolveTCPAddr("tcp", b.config.Advertise[n])
	if err != nil {
		return nil, err
	}
	if !b.overTCP {
		ln := newPipeListener(front)
		b.inside = append(b.inside, ln)
		return ln, nil
	}
	port := 0
	if n < len(b.config.Ports) {
		port = b.config.Ports[n]
	}
	if port != 0 && !free(port) {
		port = 0 // taken while the broker was down; clients know the proxy's alone
	}
	ln, err := net.Listen(network, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	b.ports = append(b.ports, ln.Addr().(*net.TCPAddr).Port)
	return advertised{ln, front}, nil
}

// advertised is a listener that says another address to be its own.
type advertised struct {
	net.Listener
	addr net.Addr
}

func (a advertised) Addr() net.Addr { return a.addr }

func (b *kafkaBackend) dial(broker int, client net.Addr) (net.Conn, error) {
	b.mu.Lock()
	inside := b.inside
	b.mu.Unlock()
	if broker >= len(inside) {
		return nil, net.ErrClosed
	}
	return inside[broker].dial(client)
}

func (b *kafkaBackend) stop(ctx context.Context) error {
	c := b.cluster
	if c == nil {
		return nil
	}
	b.cluster = nil
	b.mu.Lock()
	inside := b.inside
	b.mu.Unlock()
	return waitFor(ctx, "kafka to stop", func() {
		c.Close()
		for _, ln := range inside {
			ln.conns.Wait()
		}
	})
}

func (b *kafkaBackend) direct() string { return "" }
