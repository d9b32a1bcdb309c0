package servicebus_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/onceline/onceline/localstack/servicebus"
)

// A queue with duplicate detection, over loopback, and a window that passes at
// once.
func ExampleServer() {
	ctx := context.Background()
	s := servicebus.New()
	defer s.Close(ctx)
	if err := s.CreateQueue("orders", servicebus.QueueProperties{DuplicateDetection: true, Window: time.Minute}); err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go s.Serve(l)

	client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://"+l.Addr().String()+
		";SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	sender, err := client.NewSender("orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	id := "order 1"
	for range 2 {
		for range 2 {
			if err := sender.SendMessage(ctx, &azservicebus.Message{MessageID: &id}, nil); err != nil {
				log.Fatal(err)
			}
		}
		n, err := s.Count("orders")
		fmt.Println(n.Active, err)
		s.Clock().Advance(time.Minute)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
}
