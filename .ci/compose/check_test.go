package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceline/onceline/localstack/compose"
)

const root = "../.."

// copied writes the project's compose file, changed, to a folder in which what it
// mounts is found.
func copied(t *testing.T, change func(string) string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "localstack", "compose"), os.DirFS(filepath.Join(root, "localstack", "compose"))); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "localstack", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "localstack", "README.md"), page, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "docker-compose.yml")
	if err := os.WriteFile(file, []byte(change(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheFileIsFine(t *testing.T) {
	file := copied(t, func(s string) string { return s })
	if err := check(t.Context(), file, compose.Endpoints()); err != nil {
		t.Error(err)
	}
}

// TestEachRuleIsSeen: one change that breaks each rule is refused, by the words
// that name it.
func TestEachRuleIsSeen(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"an unknown key", "    hostname: rabbitmq #", "    hostnam: rabbitmq #", "hostnam"},
		{"not YAML", "services:", "services: [", "yaml"},
		{"no tag", "nats:2.14.3-alpine3.22", "nats", `"nats" has no tag`},
		{"latest", "nats:2.14.3-alpine3.22", "nats:latest", "names no release"},
		{"a tag that moves", "nats:2.14.3-alpine3.22", "nats:2", "names no release"},
		{"every address", `"127.0.0.1:4222:4222"`, `"4222:4222"`, `nats: port 4222 is published on ""`},
		{"another address", `"127.0.0.1:4222:4222"`, `"0.0.0.0:4222:4222"`, `nats: port 4222 is published on "0.0.0.0"`},
		{"any port", `"127.0.0.1:4222:4222"`, `"127.0.0.1::4222"`, "on no port of its own"},
		{"another port", `"127.0.0.1:4222:4222"`, `"127.0.0.1:4223:4222"`, `nats nats: its URL leads to port 4222`},
		{"another's port", `"127.0.0.1:5673:5672"`, `"127.0.0.1:5672:5672"`, "both are published on port 5672"},
		{"the admin's port", `"127.0.0.1:5300:5300"`, `"127.0.0.1:5301:5300"`, "servicebus servicebus-queue: its URL leads to port 5300"},
		{"the streams' port", `"127.0.0.1:5552:5552"`, `"127.0.0.1:5553:5552"`, "rabbitmq rabbitmq-stream: its URL leads to port 5552"},
		{"no health check", "      test: [CMD, pg_isready, -q, -h, 127.0.0.1, -U, onceline, -d, onceline]", "      test: [NONE]", "postgres: no health check"},
		{"no profile", "    profiles: [nats, brokers]\n", "", "nats: no profile"},
		{"the wrong profile", "    profiles: [nats, brokers]\n", "    profiles: [kafka, brokers]\n", "profile kafka runs nats as well"},
		{"a profile that lacks what it needs", "    profiles: [elasticmq, sqs, pubsub, servicebus, brokers]", "    profiles: [elasticmq, sqs, servicebus, brokers]", "profile pubsub"},
		{"a file that isn't there", "compose/nats/nats.conf:", "compose/nats/other.conf:", "nats: mounted file"},
		{"a writable file", "/etc/nats/onceline.conf:ro", "/etc/nats/onceline.conf", "nats.conf is mounted writable"},
		{"a service that isn't there", "      servicebus-sql:\n        condition", "      sql:\n        condition", "sql"},
		{"an image that the page doesn't name", "apache/kafka:4.2.0", "apache/kafka:4.2.9", "kafka: README.md doesn't name its image"},
		{"the host's network", "    hostname: rabbitmq #", "    network_mode: host\n    hostname: rabbitmq #", "rabbitmq: it has the host's rights"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := copied(t, func(s string) string {
				if strings.Count(s, c.old) != 1 {
					t.Fatalf("%q stands there %d times", c.old, strings.Count(s, c.old))
				}
				return strings.Replace(s, c.old, c.new, 1)
			})
			err := check(t.Context(), file, compose.Endpoints())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want one that says %q", err, c.want)
			}
		})
	}
}

// TestAPublishedServiceHasAURL: what is published and leads nowhere is a mistake in
// either of the two.
func TestAPublishedServiceHasAURL(t *testing.T) {
	var others []compose.Endpoint
	for _, e := range compose.Endpoints() {
		if e.Service != "valkey" {
			others = append(others, e)
		}
	}
	file := copied(t, func(s string) string { return s })
	err := check(t.Context(), file, others)
	if err == nil || err.Error() != "valkey: it is published, and no URL leads to it" {
		t.Error(err)
	}
}
