package localstack

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaClusterID is the ID of every cluster of ours; none ever meets another.
const kafkaClusterID = "b25jZWxpbmUtbG9jYWxrZg"

// What Kafka's tool makes of a data folder. The one file says whose it is, and the
// other one, that is the same for all nodes, which features the cluster begins with.
const (
	kafkaMeta      = "meta.properties"
	kafkaBootstrap = "bootstrap.checkpoint"
)

// format makes a node's data folder, unless there is one. Kafka's tool for that is a
// JVM which takes a second of CPU time to write these two small files, so the second
// one is kept, and later nodes of the same release and configs get it without a JVM.
func (b *kafkaServer) format(ctx context.Context, home string, java []string, file, log string, n int) error {
	data := filepath.Join(home, "data")
	if _, err := os.Stat(filepath.Join(data, kafkaMeta)); err == nil {
		return nil
	}
	prepared := b.prepared()
	if bootstrap, err := os.ReadFile(prepared); err == nil {
		return b.writeFormat(data, n, bootstrap)
	}
	name := fmt.Sprintf("kafka node %d", n)
	b.config.progress("Apache Kafka %s: formatting node %d", b.config.release, n)
	p, err := serverCommand{name: name + ": format", path: b.java, log: log, dir: home, args: append(slices.Clone(java), append([]string{
		"-cp", b.classPath, "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", file}, b.features()...)...)}.run()
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("localstack: %s: format: %w%s", name, err, p.said())
	}
	b.prepare(data, prepared)
	return nil
}

// features are the arguments of Kafka's tool that say what a cluster begins with.
func (b *kafkaServer) features() []string {
	return []string{"--feature", fmt.Sprint("transaction.version=", b.config.transaction), "--feature", "share.version=1"}
}

// prepared is the file that keeps what a node of this release, with these features and
// configs, begins with; "" where there is no cache.
func (b *kafkaServer) prepared() string {
	dir, err := b.config.cache("kafka")
	if err != nil {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n", b.config.release, b.classPath, b.features())
	for _, k := range slices.Sorted(maps.Keys(b.config.kafka.Configs)) {
		fmt.Fprintf(h, "%s=%s\n", k, b.config.kafka.Configs[k])
	}
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil)[:8]))
}

// prepare keeps what the tool made, where that is what writeFormat knows to make.
func (b *kafkaServer) prepare(data, prepared string) {
	files, err := os.ReadDir(data)
	if err != nil || prepared == "" {
		return
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	meta, err := os.ReadFile(filepath.Join(data, kafkaMeta))
	if err != nil || !slices.Equal(names, []string{kafkaBootstrap, kafkaMeta}) || !slices.Equal(metaKeys(meta), metaKeys(kafkaMetaText(0, ""))) {
		return
	}
	if bootstrap, err := os.ReadFile(filepath.Join(data, kafkaBootstrap)); err == nil && len(bootstrap) > 0 {
		_ = writeWhole(prepared, bootstrap) // the next node asks the tool again
	}
}

// writeFormat makes a data folder as the tool does.
func (b *kafkaServer) writeFormat(data string, n int, bootstrap []byte) error {
	id := make([]byte, 16)
	for id[0]>>2 == 62 || bytes.Count(id[:15], []byte{0}) == 15 { // as Kafka: none begins with "-", and some low ones are taken
		_, _ = rand.Read(id) // it never fails
	}
	err := os.MkdirAll(data, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(data, kafkaBootstrap), bootstrap, 0o600)
	}
	if err == nil { // the last, for it says that the folder is done
		err = writeWhole(filepath.Join(data, kafkaMeta), kafkaMetaText(n, base64.RawURLEncoding.EncodeToString(id)))
	}
	if err != nil {
		return fmt.Errorf("localstack: kafka node %d: format: %w", n, err)
	}
	return nil
}

// kafkaMetaText says whose a data folder is.
func kafkaMetaText(n int, directory string) []byte {
	return fmt.Appendf(nil, "cluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=1\n", kafkaClusterID, directory, n)
}

// metaKeys returns the names in a properties file, sorted.
func metaKeys(text []byte) (keys []string) {
	for line := range strings.Lines(string(text)) {
		if key, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// archive is the one for this release and its JVMs.
func (b *kafkaServer) archive(java string) *classArchive {
	who := "Apache Kafka " + b.config.release
	return &classArchive{
		name: "kafka-" + b.config.release, who: who, java: b.java, version: java, classPath: b.classPath, alsoBy: b.config.jvm,
		train: b.train,
	}
}

// train starts a node for its classes, and gives it what clients do.
func (b *kafkaServer) train(ctx context.Context, dir string, jvm []string) error {
	t := &kafkaServer{config: kafkaServerConfig{serverConfig: serverConfig{cacheDir: b.config.cacheDir}, release: b.config.release, transaction: b.config.transaction,
		kafka: kafkaConfig{Brokers: 1, Configs: kafkaServerDefaults(1), Topics: []kafkaTopics{{Partitions: 1, Names: []string{"t"}}}, Advertise: []string{loopback(1)}},
		jvm:   slices.Concat(b.config.jvm, jvm)}, java: b.java, classPath: b.classPath, nodes: make([]*serverProcess, 1)}
	if err := t.start(ctx, dir); err != nil {
		return err
	}
	if err := t.exercise(ctx); err != nil {
		return errors.Join(err, t.end())
	}
	return t.node(0).finish(ctx)
}

// exercise sends a record in a transaction, and takes it in a group of each kind.
func (b *kafkaServer) exercise(ctx context.Context) error {
	open := func(opts ...kgo.Opt) (*kgo.Client, error) {
		return kgo.NewClient(append(opts, kgo.SeedBrokers(b.direct()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	}
	cl, err := open(kgo.TransactionalID("t"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())
	if err != nil {
		return fmt.Errorf("localstack: kafka: %w", err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return fmt.Errorf("localstack: kafka: %w", err)
	}
	if err := errors.Join(cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("t")}).FirstErr(), cl.EndTransaction(ctx, kgo.TryCommit)); err != nil {
		return fmt.Errorf("localstack: kafka: %w", err)
	}
	records := cl.PollFetches(ctx)
	if err := errors.Join(records.Err0(), cl.CommitRecords(ctx, records.Records()...)); err != nil {
		return fmt.Errorf("localstack: kafka: %w", err)
	}
	return nil
}
