// Command metrics is a service whose metrics Prometheus scrapes: orders are written to an
// outbox with the data they tell of, relayed to a broker, and booked once each, although
// the producer sends some twice.
//
//	go run . -addr 127.0.0.1:9464
//	curl http://127.0.0.1:9464/metrics
//
// The files beside ../../docs/operations/README.md go with it: prometheus.yml scrapes it,
// alerts.yml and dashboard.json read what it exports.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9464", "where to serve /metrics")
	every := flag.Duration("every", 100*time.Millisecond, "write an order this often")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *every); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string, every time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "onceline-metrics")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("metrics at http://%s/metrics\n", l.Addr())
	return serve(ctx, l, filepath.Join(dir, "shop.db"), every)
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, l net.Listener, db string, every time.Duration) (err error) {
	s, err := open(ctx, db)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, s.close()) }()
	mux := http.NewServeMux()
	mux.Handle("/metrics", s.metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(l) }()
	err = s.work(ctx, every)
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(bound))
	if served := <-serving; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
