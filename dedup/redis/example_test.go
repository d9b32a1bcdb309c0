package redis_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/redis/rueidis"
)

// A service tells a device something, once for each message. The device refuses
// numbers that are lower than one it has seen.
func Example() {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := redis.New(ctx, client, redis.Options{}) // refuses a server that evicts
	if err != nil {
		log.Fatal(err)
	}
	lease := dedup.NewLease(store, "heating", dedup.LeaseOptions{})
	tell := func(ctx context.Context, fence int64, celsius int) (state []byte, err error) {
		return fmt.Appendf(nil, "set to %d by %d", celsius, fence), nil
	}
	outcome, state, err := lease.Once(ctx, dedup.Key{ID: "room-12:night:v1"}, func(ctx context.Context, fence int64) ([]byte, error) {
		return tell(ctx, fence, 17)
	})
	fmt.Println(outcome, string(state), err)
}
