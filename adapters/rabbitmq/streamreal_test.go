package rabbitmq

import (
	"os"
	"testing"
)

// realStreams is the URL of a real broker with the stream plugin, with queue=stream
// and stream-port: for example
// rabbitmq://127.0.0.1/?queue=stream&stream-port=5552.
func realStreams(t testing.TB) string {
	t.Helper()
	url := os.Getenv("ONCELINE_RABBITMQ_STREAM")
	if url == "" {
		t.Skip("ONCELINE_RABBITMQ_STREAM names no broker")
	}
	return url
}

func TestStreamOnARealBroker(t *testing.T) {
	url := realStreams(t)
	for name, test := range map[string]func(*testing.T, string){
		"publish, receive, settle": streamRoundTrip,
		"acks ahead":               streamAcksAhead,
		"nack":                     streamNack,
		"start from":               streamStartFrom,
		"the vendor's client":      streamWithSDK,
		"cuts":                     streamCuts,
	} {
		t.Run(name, func(t *testing.T) { test(t, url) })
	}
}
