package compose_test

import (
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/onceline/onceline/localstack/compose"
)

func TestEndpoints(t *testing.T) {
	es := compose.Endpoints()
	names := map[string]bool{}
	for _, e := range es {
		u, err := url.Parse(e.URL)
		if err != nil || u.Hostname() != "127.0.0.1" || u.Port() == "" {
			t.Errorf("%s: %q leads elsewhere: %v", e.Service, e.URL, err)
		}
		if e.Name == "" {
			continue
		}
		if names[e.Name] {
			t.Errorf("%s twice", e.Name)
		}
		names[e.Name] = true
	}
	if len(es) < 18 || len(es)-len(names) != 3 {
		t.Errorf("%d endpoints, %d of brokers", len(es), len(names))
	}
}

// TestServiceBus: the emulator's bounds of what its file may ask for
// (its published schema): queues and topics up to 50, locks of 5 s to 5 min, windows
// of 5 s to 5 min, up to 10 deliveries.
func TestServiceBus(t *testing.T) {
	text, err := os.ReadFile("servicebus/Config.json")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		UserConfig struct {
			Namespaces []struct {
				Name   string
				Queues []struct {
					Name       string
					Properties struct {
						DefaultMessageTimeToLive, DuplicateDetectionHistoryTimeWindow, LockDuration string
						MaxDeliveryCount                                                            int
						RequiresDuplicateDetection, RequiresSession                                 bool
					}
				}
				Topics []struct{}
			}
			Logging struct{ Type string }
		}
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&config); err != nil {
		t.Fatal(err)
	}
	ns := config.UserConfig.Namespaces
	if len(ns) != 1 || ns[0].Name != "sbemulatorns" || ns[0].Topics == nil || config.UserConfig.Logging.Type != "Console" {
		t.Fatalf("%+v", config)
	}
	sessions := 0
	for _, q := range ns[0].Queues {
		p := q.Properties
		if p.LockDuration != "PT5S" || p.DuplicateDetectionHistoryTimeWindow != "PT20S" || p.DefaultMessageTimeToLive != "PT1H" ||
			p.MaxDeliveryCount < 1 || p.MaxDeliveryCount > 10 || !p.RequiresDuplicateDetection {
			t.Errorf("%+v", q)
		}
		if p.RequiresSession {
			sessions++
		}
	}
	if len(ns[0].Queues) != 2 || sessions != 1 {
		t.Errorf("%d queues, %d with sessions", len(ns[0].Queues), sessions)
	}
}

// TestKafka: every line of the file is a setting, given once, and the ports are those
// of the URLs.
func TestKafka(t *testing.T) {
	text, err := os.ReadFile("kafka/server.properties")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if _, twice := settings[key]; !ok || twice || value == "" {
			t.Errorf("%q", line)
		}
		settings[key] = value
	}
	for _, e := range compose.Endpoints() {
		if e.Service == "kafka" && !strings.Contains(e.URL, strings.TrimPrefix(settings["advertised.listeners"], "CLIENT")) {
			t.Errorf("%s: Kafka says that it is at %s", e.URL, settings["advertised.listeners"])
		}
	}
}
