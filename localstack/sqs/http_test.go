package sqs_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/onceline/onceline/localstack/sqs"
)

func try(ctx context.Context, h http.Handler, op, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "AmazonSQS."+op)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// SQS-F-55: errors by both of their names, as every SDK looks for one of them.
func TestErrorsOnTheWire(t *testing.T) {
	s := sqs.New()
	call(t, s, "CreateQueue", `{"QueueName":"q"}`)
	for _, c := range []struct {
		op, body   string
		status     int
		shape, old string
	}{
		{"GetQueueUrl", `{"QueueName":"none"}`, 400, "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue;Sender"},
		{"ReceiveMessage", `{"QueueUrl":"q","MaxNumberOfMessages":11}`, 400, "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue;Sender"},
		{"SendMessage", `{"QueueUrl":"q"}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
		{"ListMessageMoveTasks", `{"SourceArn":"arn:aws:sqs:us-east-1:000000000000:none"}`, 404, "com.amazonaws.sqs#ResourceNotFoundException", "ResourceNotFoundException;Sender"},
		{"Unknown", `{}`, 400, "com.amazon.coral.service#UnknownOperationException", "UnknownOperationException;Sender"},
		{"SendMessage", `{"QueueUrl":"q","MessageBody":1}`, 400, "com.amazon.coral.service#SerializationException", "SerializationException;Sender"},
		{"ReceiveMessage", `{"QueueUrl":"q","WaitTimeSeconds":"1"}`, 400, "com.amazon.coral.service#SerializationException", "SerializationException;Sender"},
		{"DeleteMessage", `{"QueueUrl":"q","ReceiptHandle":"x"}`, 404, "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid;Sender"},
		{"DeleteMessage", `{"QueueUrl":"q"}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
		{"ChangeMessageVisibility", `{"QueueUrl":"q","ReceiptHandle":"x"}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
		{"PurgeQueue", `{}`, 400, "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter;Sender"},
	} {
		w := try(t.Context(), s, c.op, c.body)
		var e struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != c.status || e.Type != c.shape || e.Message == "" || w.Header().Get("x-amzn-query-error") != c.old {
			t.Errorf("%s %s: %d %s %s %v", c.op, c.body, w.Code, w.Body, w.Header().Get("x-amzn-query-error"), err)
		}
		if w.Header().Get("Content-Type") != "application/x-amz-json-1.0" || w.Header().Get("x-amzn-RequestId") == "" {
			t.Errorf("%s: headers %v", c.op, w.Header())
		}
	}
}

// SQS-F-63: no key where there is no message.
func TestEmptyReceiveOnTheWire(t *testing.T) {
	s := sqs.New()
	call(t, s, "CreateQueue", `{"QueueName":"q"}`)
	if got := string(call(t, s, "ReceiveMessage", `{"QueueUrl":"http://x/000000000000/q"}`)); got != "{}" {
		t.Error(got)
	}
}

func TestNotTheProtocol(t *testing.T) {
	s := sqs.New()
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r := httptest.NewRequest(method, "/", nil)
		r.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	for _, announced := range []bool{true, false} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat(" ", 8<<20)+"{}"))
		if !announced {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("more than 8 MiB: %d", w.Code)
		}
	}
}

// SQS-F-68: what the Go SDK doesn't send, but others do.
func TestZeroes(t *testing.T) {
	s := sqs.New()
	for name, attrs := range map[string]string{"q": "", "q.fifo": `"FifoQueue":"true","ContentBasedDeduplication":"true",`} {
		call(t, s, "CreateQueue", `{"QueueName":"`+name+`","Attributes":{`+attrs+`"DelaySeconds":"900","ReceiveMessageWaitTimeSeconds":"20"}}`)
		call(t, s, "SendMessage", `{"QueueUrl":"`+name+`","MessageBody":"b","MessageGroupId":"g","DelaySeconds":0}`)
		// A wait of zero seconds overrides the queue's.
		got := string(call(t, s, "ReceiveMessage", `{"QueueUrl":"`+name+`","WaitTimeSeconds":0,"VisibilityTimeout":0}`))
		if now := got != "{}"; now != (name == "q") {
			t.Errorf("%s: a delay of zero, received %s", name, got)
		}
	}
}

func TestTrace(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	s := sqs.New(sqs.Trace(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}))
	call(t, s, "CreateQueue", `{"QueueName":"q"}`)
	call(t, s, "SendMessage", `{"QueueUrl":"http://x/0/q","MessageBody":"secret"}`)
	try(t.Context(), s, "SendMessage", `{"QueueUrl":"none","MessageBody":"secret"}`)
	for i, want := range []string{"CreateQueue q 1 200 ", "SendMessage q 1 200 ", "SendMessage none 0 400 "} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) || strings.Contains(lines[i], "secret") {
			t.Errorf("%q, want %q", lines, want)
		}
	}
}
