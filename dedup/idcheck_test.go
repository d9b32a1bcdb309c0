package dedup_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

func TestIDCheck(t *testing.T) {
	body := []byte(`{"remind": 7}`)
	sum, short := sha256.Sum256(body), md5.Sum(body)
	at := time.Now()
	for _, c := range []struct {
		name string
		msgs []broker.Message
		says string // of the last
	}{
		{"hash", []broker.Message{{ID: hex.EncodeToString(sum[:]), Body: body}}, "SHA-256"},
		{"hash in capitals", []broker.Message{{ID: strings.ToUpper(hex.EncodeToString(short[:])), Body: body}}, "MD5"},
		{"hash in base64", []broker.Message{{ID: base64.RawURLEncoding.EncodeToString(sum[:]), Body: body}}, "SHA-256"},
		{"hash of something else", []broker.Message{{ID: hex.EncodeToString(sum[:]), Body: []byte("other")}}, ""},
		{"random for each attempt", []broker.Message{
			{ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b", Body: body, Time: at}, {ID: "0b1c2d3e-4f5a-4b6c-8d7e-9f0a1b2c3d4e", Body: body, Time: at}}, "made for each attempt"},
		{"ULIDs", []broker.Message{{ID: "01J9ZC3M8K5T2V7X4B6N1Q0R3S", Body: body}, {ID: "01J9ZC3N2H8F6D4S1A9P7W5E0Y", Body: body}}, "made for each attempt"},
		{"random, but kept", []broker.Message{{ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b", Body: body}, {ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b", Body: body}}, ""},
		{"random, of another time", []broker.Message{
			{ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b", Body: body, Time: at}, {ID: "0b1c2d3e-4f5a-4b6c-8d7e-9f0a1b2c3d4e", Body: body, Time: at.Add(time.Second)}}, ""},
		{"random, of another key", []broker.Message{
			{ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b", Key: "a", Body: body}, {ID: "0b1c2d3e-4f5a-4b6c-8d7e-9f0a1b2c3d4e", Key: "b", Body: body}}, ""},
		{"from the business", []broker.Message{{ID: "order-8812:paid:v1", Body: body}, {ID: "order-8813:paid:v1", Body: body}}, ""},
		{"words", []broker.Message{{ID: "invoice20260310payment", Body: body}, {ID: "invoice20260311payment", Body: body}}, ""},
		{"no body", []broker.Message{{ID: "8c0f1a2e-91d4-4f57-9a34-1c2d3e4f5a6b"}, {ID: "0b1c2d3e-4f5a-4b6c-8d7e-9f0a1b2c3d4e"}}, ""},
	} {
		check := dedup.NewIDCheck(0)
		var says string
		for i := range c.msgs {
			says = check.Look(&c.msgs[i])
		}
		if c.says == "" && says != "" || !strings.Contains(says, c.says) {
			t.Errorf("%s: %q, want %q", c.name, says, c.says)
		}
	}
}

// TestIDCheckForgets: it remembers the last n messages, and no more.
func TestIDCheckForgets(t *testing.T) {
	check := dedup.NewIDCheck(3)
	look := func(n, id int) string {
		return check.Look(&broker.Message{ID: fmt.Sprintf("8c0f1a2e-91d4-4f57-9a34-%012d", id), Body: []byte{byte(n)}})
	}
	for n := 1; n <= 5; n++ {
		if says := look(n, n); says != "" {
			t.Error(says)
		}
	}
	if says := look(5, 99); says == "" {
		t.Error("the last one is forgotten")
	}
	if says := look(2, 99); says != "" {
		t.Errorf("the first one is remembered: %s", says)
	}
}
