package redis_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/redis/rueidis"
)

// TestFootprint measures what a record without a result takes. It takes a while:
// ONCELINE_FOOTPRINT holds the number of records.
func TestFootprint(t *testing.T) {
	want, _ := strconv.Atoi(os.Getenv("ONCELINE_FOOTPRINT"))
	if want == 0 {
		t.Skip("set ONCELINE_FOOTPRINT to a number of records")
	}
	client := connect(t, start(t))
	used := func() int64 {
		for line := range strings.Lines(do(t, client, "INFO", "memory")) {
			if value, ok := strings.CutPrefix(line, "used_memory:"); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatal("no used_memory")
		return 0
	}
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{MaxBatch: 500})
	before := used()
	keys := make([]dedup.Key, 500)
	for done := 0; done < want; done += len(keys) {
		for i := range keys {
			keys[i] = byID(fmt.Sprint("m-", done+i))
		}
		for _, r := range l.OnceBatch(t.Context(), keys, func(context.Context, int, int64) ([]byte, error) { return nil, nil }) {
			if r.Outcome != dedup.Applied {
				t.Fatal(r)
			}
		}
	}
	each := float64(used()-before) / float64(want)
	t.Logf("%d records take %.1f bytes each; MEMORY USAGE of one says %d", want, each, usage(t, client))
	if each > float64(redis.RecordBytes)*1.1 {
		t.Errorf("RecordBytes says %v", redis.RecordBytes)
	}
}

// usage is what the server says of some record.
func usage(t *testing.T, client rueidis.Client) int64 {
	t.Helper()
	n, err := client.Do(t.Context(), client.B().MemoryUsage().Key(do(t, client, "RANDOMKEY")).Build()).AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
