package redis_test

import (
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/onceline/onceline/localstack"
	"github.com/redis/rueidis"
)

// start starts a server for the test alone.
func start(t testing.TB) *localstack.Database {
	t.Helper()
	return servertest.Redis(t)
}

func connect(t testing.TB, db *localstack.Database) rueidis.Client {
	t.Helper()
	option, err := rueidis.ParseURL(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	option.DisableCache, option.ForceSingleClient = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func open(t testing.TB, client rueidis.Client, o redis.Options) *redis.Store {
	t.Helper()
	s, err := redis.New(t.Context(), client, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// do runs a command and returns its answer as text.
func do(t testing.TB, client rueidis.Client, words ...string) string {
	t.Helper()
	answer, err := client.Do(t.Context(), client.B().Arbitrary(words[0]).Args(words[1:]...).Build()).ToAny()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", words, err)
	}
	text, _ := answer.(string)
	return text
}

// onEach runs a command on each node that the client knows.
func onEach(t testing.TB, client rueidis.Client, words ...string) {
	t.Helper()
	for _, node := range client.Nodes() {
		do(t, node, words...)
	}
}

func byID(id string) dedup.Key { return dedup.Key{ID: id} }
