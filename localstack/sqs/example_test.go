package sqs_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/localstack/sqs"
)

// The vendor's SDK on an emulator without a network. With a listener it is Serve
// and a BaseEndpoint at the listener's address.
func ExampleServer_Transport() {
	ctx := context.Background()
	s := sqs.New()
	client := sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://sqs.local"),
		HTTPClient:  &http.Client{Transport: s.Transport()},
		Credentials: credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
	q, err := client.CreateQueue(ctx, &sdk.CreateQueueInput{QueueName: aws.String("orders")})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.SendMessage(ctx, &sdk.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: aws.String("hello")})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := client.ReceiveMessage(ctx, &sdk.ReceiveMessageInput{QueueUrl: q.QueueUrl})
	fmt.Println(*q.QueueUrl, *out.Messages[0].Body, err)
	// Output: http://sqs.local/000000000000/orders hello <nil>
}
