package stream

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/logs"
	sdk "github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
	"go.uber.org/goleak"
)

// quiet keeps what the vendor's client logs to itself.
type quiet struct{}

func (quiet) Info(string, ...any)  {}
func (quiet) Error(string, ...any) {}
func (quiet) Debug(string, ...any) {}
func (quiet) Warn(string, ...any)  {}

func TestMain(m *testing.M) {
	logs.SetLogger(quiet{})
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// serve starts a server on a free port of the loopback.
func serve(t testing.TB, opts ...Option) (*Server, *net.TCPAddr) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(opts...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, l.Addr().(*net.TCPAddr)
}

// environment is the vendor's client.
func environment(t testing.TB, addr *net.TCPAddr) *sdk.Environment {
	t.Helper()
	env, err := sdk.NewEnvironment(sdk.NewEnvironmentOptions().SetRPCTimeout(30 * time.Second).SetHost("127.0.0.1").SetPort(addr.Port).SetUser("guest").SetPassword("guest"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { env.Close() })
	return env
}
