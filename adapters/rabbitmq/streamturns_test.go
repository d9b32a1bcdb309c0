package rabbitmq

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	emulator "github.com/onceline/onceline/localstack/rabbitmq/stream"
)

// words is a log.
type words chan string

func (w words) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

// Before 3.11 nobody takes turns (RMS-F-16), of which each receiver warns; and all
// else holds.
func TestStreamBeforeTurns(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t, emulator.Version("3.10.8"))
	streamRoundTrip(t, url)
	streamAcksAhead(t, url)
	log := make(words, 16)
	c := dialStreams(t, url, Logger(slog.New(slog.NewTextHandler(log, nil))))
	e := streamEntity(t, c)
	publishAll(t, streamPub(t, c, e), streamMessages(0, 3)...)
	for range 2 {
		if got := idsOf(receiveN(t, streamRcv(t, c, e), 3)); !slices.Equal(got, []string{"m0", "m1", "m2"}) {
			t.Errorf("each receiver gets all, and one got %v", got)
		}
	}
	for range 2 {
		if said := next(t, log); !strings.Contains(said, "take no turns") || !strings.Contains(said, e.Subscription) {
			t.Errorf("a receiver said %q", said)
		}
	}
	if len(log) > 0 {
		t.Errorf("and more: %q", <-log)
	}
}
