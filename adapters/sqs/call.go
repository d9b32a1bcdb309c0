package sqs

import (
	"context"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// once are the options of a call that is one request: what the SDK would retry
// by itself can be a second copy (SQS-F-13), and its checksum validation fails a
// batch for one entry, with the receipts of all.
var once = []func(*awssqs.Options){func(o *awssqs.Options) {
	o.Retryer = aws.NopRetryer{}
	o.DisableMessageChecksumValidation = true
	o.APIOptions = append(o.APIOptions[:len(o.APIOptions):len(o.APIOptions)], onlyRead)
}}

// onlyRead makes the SDK's request body one that is only read.
//
// The SDK closes a request's body as soon as the headers of the answer are here.
// net/http may not be through with it then: behind the last byte it looks for
// more. The SDK's closed body says io.EOF to that look, as an error of WriteTo,
// which is no end to net/http, as it would be of Read, but a failed write: it
// closes the connection, and the answer that is on it is lost (SQS-F-80). For a
// receive that means messages which are handed out and never seen.
func onlyRead(stack *middleware.Stack) error {
	return stack.Finalize.Add(bodyReader{}, middleware.After)
}

type bodyReader struct{}

// ID is part of middleware.FinalizeMiddleware.
func (bodyReader) ID() string { return "OncelineOnlyRead" }

// HandleFinalize is part of middleware.FinalizeMiddleware.
func (bodyReader) HandleFinalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
	middleware.FinalizeOutput, middleware.Metadata, error,
) {
	if r, ok := in.Request.(*smithyhttp.Request); ok {
		if body, ok := r.GetStream().(io.ReadSeeker); ok {
			if r, err := r.SetStream(struct{ io.ReadSeeker }{body}); err == nil {
				in.Request = r
			}
		}
	}
	return next.HandleFinalize(ctx, in)
}
