package servicebus_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/onceline/onceline/localstack/servicebus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a server over loopback and returns its connection string.
func start(t testing.TB, options ...servicebus.Option) (*servicebus.Server, string) {
	t.Helper()
	s := servicebus.New(options...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error("Serve:", err)
		}
	})
	return s, "Endpoint=sb://" + l.Addr().String() + ";SharedAccessKeyName=k;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
}

// dial returns a client of the vendor's SDK that retries nothing.
func dial(t testing.TB, connection string) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString(connection, &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

// pipe returns a client over net.Pipe, as it is used inside testing/synctest.
func pipe(t testing.TB, s *servicebus.Server) *azservicebus.Client {
	t.Helper()
	c, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://pipe;SharedAccessKeyName=k;SharedAccessKey=a2V5", &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
		NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			near, far := net.Pipe()
			s.ServeConn(far)
			return near, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
