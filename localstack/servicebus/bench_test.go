package servicebus_test

import (
	"fmt"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/onceline/onceline/localstack/servicebus"
)

// BenchmarkSDK is the vendor's SDK on the emulator: batches sent, and batches
// received and completed one by one.
func BenchmarkSDK(b *testing.B) {
	for _, size := range []int{256, 4096} {
		body := make([]byte, size)
		fill := func(b *testing.B, sender *azservicebus.Sender, n, from int) {
			batch, err := sender.NewMessageBatch(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				if err := batch.AddMessage(&azservicebus.Message{MessageID: to.Ptr(fmt.Sprint(from + i)), Body: body}, nil); err != nil {
					b.Fatal(err)
				}
			}
			if err := sender.SendMessageBatch(b.Context(), batch, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("send/batch=50/size=%d", size), func(b *testing.B) {
			s, connection := start(b)
			create(b, s, "q", servicebus.QueueProperties{DuplicateDetection: true})
			sender := must(dial(b, connection).NewSender("q", nil))(b)
			b.ReportAllocs()
			for n := 0; b.Loop(); n += 50 {
				fill(b, sender, 50, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50, "ns/msg")
		})
		b.Run(fmt.Sprintf("receive/batch=50/size=%d", size), func(b *testing.B) {
			s, connection := start(b)
			create(b, s, "q", servicebus.QueueProperties{})
			c := dial(b, connection)
			sender := must(c.NewSender("q", nil))(b)
			r := must(c.NewReceiverForQueue("q", nil))(b)
			n := 0
			for b.Loop() {
				b.StopTimer()
				fill(b, sender, 50, n)
				n += 50
				b.StartTimer()
				for _, m := range receive(b, r, 50) {
					if err := r.CompleteMessage(b.Context(), m, nil); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50, "ns/msg")
		})
	}
}
