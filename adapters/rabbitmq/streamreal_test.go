package rabbitmq

import (
	"os"
	"strings"
	"testing"
)

// realStreams is the URL of a real broker with the stream plugin, with queue=stream
// and stream-port: of the one that the tests share, or what
// ONCELINE_RABBITMQ_STREAM has, for example
// rabbitmq://127.0.0.1/?queue=stream&stream-port=5552.
func realStreams(t testing.TB) string {
	t.Helper()
	if url := os.Getenv("ONCELINE_RABBITMQ_STREAM"); url != "" {
		return url
	}
	m := sharedMeasured(t)
	return m.URL() + "/?queue=stream&stream-port=" + m.Address()[strings.LastIndexByte(m.Address(), ':')+1:]
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
