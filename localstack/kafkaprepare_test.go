package localstack

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func preparedKafka(dir string, transaction int, configs map[string]string) *kafkaServer {
	return &kafkaServer{classPath: "a.jar", config: kafkaServerConfig{serverConfig: serverConfig{cacheDir: dir},
		kafka: kafkaConfig{Configs: configs}, release: "4.2.0", transaction: transaction}}
}

// What Kafka's tool made for one node is made for the next one without it, but for
// what is each node's own.
func TestKafkaFormatIsKept(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "made")
	byTool := "#\n#Mon Nov 30 13:37:31 UTC 2026\nnode.id=0\ndirectory.id=7_ubjLpjLItldw6qPPP-0w\nversion=1\ncluster.id=" + kafkaClusterID + "\n"
	if err := errors.Join(os.Mkdir(made, 0o700), os.WriteFile(filepath.Join(made, kafkaMeta), []byte(byTool), 0o600),
		os.WriteFile(filepath.Join(made, kafkaBootstrap), []byte("features"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b := preparedKafka(dir, 2, map[string]string{"a": "1"})
	b.prepare(made, b.prepared())
	seen := map[string]bool{}
	for n := range 3 {
		home := filepath.Join(dir, "node-"+string(rune('0'+n)))
		if err := b.format(t.Context(), home, nil, "", "", n); err != nil { // there is no tool here
			t.Fatal(err)
		}
		features, err := os.ReadFile(filepath.Join(home, "data", kafkaBootstrap))
		if err != nil || string(features) != "features" {
			t.Errorf("%q, %v", features, err)
		}
		meta, err := os.ReadFile(filepath.Join(home, "data", kafkaMeta))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(meta), "directory.id=")
		id, _, _ := strings.Cut(rest, "\n")
		if raw, err := base64.RawURLEncoding.DecodeString(id); err != nil || len(raw) != 16 || seen[id] || id[0] == '-' {
			t.Errorf("the folder's ID %q, %v", id, err)
		}
		seen[id] = true
		if want := kafkaMetaText(n, id); !bytes.Equal(meta, want) {
			t.Errorf("%s, want %s", meta, want)
		}
	}
	for _, other := range []*kafkaServer{preparedKafka(dir, 1, map[string]string{"a": "1"}), preparedKafka(dir, 2, map[string]string{"a": "2"})} {
		if other.prepared() == b.prepared() {
			t.Errorf("another cluster has the same: %+v", other.config)
		}
	}

	// What the tool of some release makes otherwise is left to it.
	other := preparedKafka(dir, 0, nil)
	for name, file := range map[string]struct{ file, text string }{"a key more": {kafkaMeta, byTool + "more=1\n"}, "a file more": {"more", ""}, "no features": {kafkaBootstrap, ""}} {
		strange := filepath.Join(dir, name)
		if err := errors.Join(os.CopyFS(strange, os.DirFS(made)), os.WriteFile(filepath.Join(strange, file.file), []byte(file.text), 0o600)); err != nil {
			t.Fatal(err)
		}
		other.prepare(strange, other.prepared())
		if _, err := os.Stat(other.prepared()); err == nil {
			t.Errorf("%s: it was kept", name)
		}
	}
}
