package sqs_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/onceline/onceline/localstack/sqs"
)

// BenchmarkHandler is what the emulator itself costs, for a batch of ten.
func BenchmarkHandler(b *testing.B) {
	for _, size := range []int{256, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			s := sqs.New()
			call(b, s, "CreateQueue", `{"QueueName":"q"}`)
			url := `"QueueUrl":"http://sqs.local/000000000000/q"`
			var entries []string
			for i := range 10 {
				entries = append(entries, fmt.Sprintf(`{"Id":"%d","MessageBody":"%s","MessageAttributes":{"id":{"DataType":"String","StringValue":"0123456789abcdef"}}}`, i, strings.Repeat("x", size)))
			}
			send := "{" + url + `,"Entries":[` + strings.Join(entries, ",") + "]}"
			handle := regexp.MustCompile(`"ReceiptHandle":"([^"]*)"`)
			b.Run("send", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					call(b, s, "SendMessageBatch", send)
				}
			})
			b.Run("receive+delete", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					call(b, s, "SendMessageBatch", send)
					b.StartTimer()
					out := call(b, s, "ReceiveMessage", "{"+url+`,"MaxNumberOfMessages":10,"MessageAttributeNames":["All"],"MessageSystemAttributeNames":["All"]}`)
					var del []string
					b.StopTimer()
					for i, m := range handle.FindAllSubmatch(out, -1) {
						del = append(del, fmt.Sprintf(`{"Id":"%d","ReceiptHandle":"%s"}`, i, m[1]))
					}
					if len(del) != 10 {
						b.Fatalf("%d messages", len(del))
					}
					body := "{" + url + `,"Entries":[` + strings.Join(del, ",") + "]}"
					b.StartTimer()
					call(b, s, "DeleteMessageBatch", body)
				}
			})
		})
	}
}

// call sends one request to the handler and returns its answer.
func call(t testing.TB, h http.Handler, op, body string) []byte {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "AmazonSQS."+op)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	out, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK || bytes.Contains(out, []byte(`"Failed"`)) {
		t.Fatalf("%s: %d %s %v", op, w.Code, out, err)
	}
	return out
}
