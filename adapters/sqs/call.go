package sqs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// single returns a client like another one, whose calls are one request each: what
// the SDK would retry by itself can be a second copy (SQS-F-13), and its checksum
// validation fails a batch for one entry, with the receipts of all.
func single(client *awssqs.Client) *awssqs.Client {
	return awssqs.New(client.Options(), func(o *awssqs.Options) {
		o.Retryer = aws.NopRetryer{}
		o.DisableMessageChecksumValidation = true
		o.HTTPClient = bodies{o.HTTPClient}
	})
}

// bodies makes the body of each request one that is only read, and watched.
//
// The SDK closes a request's body as soon as the headers of the answer are here.
// net/http may not be through with it then: behind the last byte it looks for
// more. The SDK's closed body says io.EOF to that look, as an error of WriteTo,
// which is no end to net/http, as it would be of Read, but a failed write: it
// closes the connection, and the answer that is on it is lost (SQS-F-80). For a
// receive that means messages which are handed out and never seen.
type bodies struct{ aws.HTTPClient }

// Do is part of aws.HTTPClient.
func (c bodies) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		b, watched := r.Context().Value(outgoingKey{}).(*outgoing)
		if !watched {
			b = new(outgoing)
		}
		b.body = r.Body
		r.Body = b
	}
	return c.HTTPClient.Do(r)
}

// outgoing is the body of one request. A request of which nothing was read surely had
// no effect: it is the body that says what is wanted.
type outgoing struct {
	body  io.ReadCloser
	state atomic.Uint32
}

// The states of a body.
const (
	unread uint32 = iota
	begun
	sealed // it stays unread
)

type outgoingKey struct{}

// watch returns a context for one request, and the body which that will have.
func watch(ctx context.Context) (context.Context, *outgoing) {
	b := new(outgoing)
	return context.WithValue(ctx, outgoingKey{}, b), b
}

// never reports whether the request surely didn't leave, and sees to it that it
// doesn't any more. It is asked when the call has returned.
func (b *outgoing) never() bool {
	return b != nil && (b.state.CompareAndSwap(unread, sealed) || b.state.Load() == sealed)
}

var errSealed = errors.New("the call has returned")

// Read is part of io.ReadCloser.
func (b *outgoing) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(unread, begun) && b.state.Load() == sealed {
		return 0, errSealed
	}
	return b.body.Read(p)
}

// Close is part of io.ReadCloser.
func (b *outgoing) Close() error { return b.body.Close() }
