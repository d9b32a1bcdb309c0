package redis_test

import (
	"testing"

	"github.com/redis/rueidis"
)

// TestWrongWays shows the anomalies of leases that are written in the ways one finds,
// on a real server: what this package's own tests look for is there to be seen.
func TestWrongWays(t *testing.T) {
	client := connect(t, start(t))
	// claims is the usual claim: SET key PROCESSING NX EX seconds.
	claims := func(key, seconds string) bool {
		err := client.Do(t.Context(), client.B().Arbitrary("SET", key, "PROCESSING", "NX", "EX", seconds).Build()).Error()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, c := range []struct {
		name    string
		anomaly func(key string) bool
	}{
		{"a crash blocks the message for the whole time of the claim", func(key string) bool {
			claims(key, "86400") // and then it crashes, before the effect
			return !claims(key, "86400") && do(t, client, "GET", key) == "PROCESSING"
		}},
		{"who gives up removes the record of who was faster", func(key string) bool {
			claims(key, "60") // slow
			do(t, client, "DEL", key)
			claims(key, "60") // another, as after the claim's end
			do(t, client, "SET", key, "DONE")
			do(t, client, "DEL", key) // the slow one fails, and gives its claim back
			return claims(key, "60")  // a copy is applied again
		}},
		{"who is slow overwrites the claim of another", func(key string) bool {
			claims(key, "60") // slow
			do(t, client, "DEL", key)
			claims(key, "60")                 // another, whose effect will fail
			do(t, client, "SET", key, "DONE") // the slow one's
			return do(t, client, "GET", key) == "DONE" && !claims(key, "60")
		}},
	} {
		if !c.anomaly(c.name) {
			t.Errorf("the anomaly doesn't show: %s", c.name)
		}
	}
}
