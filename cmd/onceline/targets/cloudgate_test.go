package targets

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// everywhere is an address that leads to this machine and isn't its loopback, so
// that adapters treat it like any other host: with TLS, and with credentials.
var everywhere = net.IPv4zero

// loopback is an address of this machine alone.
var loopback = net.IPv4(127, 0, 0, 1)

// gate is the way into a model for clients of a cloud: TLS with a certificate of a
// CA that nobody knows.
type gate struct {
	ca     string // file
	config *tls.Config
}

func newGate(t *testing.T) *gate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{everywhere, loopback}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{ca: filepath.Join(t.TempDir(), "ca.pem"),
		config: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}}
	if err := os.WriteFile(g.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// listen takes connections, until the test ends.
func (g *gate) listen(t *testing.T, ip net.IP) (net.Listener, string) {
	t.Helper()
	ln, err := net.Listen("tcp4", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	return ln, ln.Addr().String()
}

// pass takes TLS off connections and passes what comes on to address. It returns
// where it listens, which is everywhere.
func (g *gate) pass(t *testing.T, address string) string { return g.passAt(t, everywhere, address) }

func (g *gate) passAt(t *testing.T, ip net.IP, address string) string {
	t.Helper()
	ln, at := g.listen(t, ip)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { splice(ctx, tls.Server(c, g.config), address) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		cancel()
		all.Wait()
	})
	return at
}

// splice passes bytes on in both directions until either side or ctx ends.
func splice(ctx context.Context, client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
	both.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
	both.Wait()
}

// account is a service account of Google's: the file that a client reads, and the
// key that its tokens are checked with.
type account struct {
	file string
	key  *rsa.PublicKey
}

func newAccount(t *testing.T) account {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "onceline", "private_key_id": "1",
		"private_key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email": "onceline@onceline.iam.gserviceaccount.com", "client_id": "1",
		"token_uri": "https://127.0.0.1:1/token", // never asked: the client signs its tokens
	})
	if err != nil {
		t.Fatal(err)
	}
	a := account{filepath.Join(t.TempDir(), "account.json"), &key.PublicKey}
	if err := os.WriteFile(a.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// signed reports whether the account signed a token.
func (a account) signed(token string) bool {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(token[:i]))
	return rsa.VerifyPKCS1v15(a.key, crypto.SHA256, sum[:], signature) == nil
}

// bytesCodec passes messages as the bytes that they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                       { return "proto" }

// passGRPC is pass for Pub/Sub, which checks the token of each call.
func (g *gate) passGRPC(t *testing.T, address string, a account) string {
	t.Helper()
	behind, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	ln, at := g.listen(t, everywhere)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(g.config)), grpc.ForceServerCodec(bytesCodec{}), grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, client grpc.ServerStream) error {
			md, _ := metadata.FromIncomingContext(client.Context())
			bearer := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
			if !a.signed(bearer) {
				return status.Error(codes.Unauthenticated, "the token is not the account's")
			}
			method, _ := grpc.MethodFromServerStream(client)
			var request, answer []byte
			if err := client.RecvMsg(&request); err != nil {
				return err
			}
			if err := behind.Invoke(client.Context(), method, &request, &answer); err != nil {
				return err
			}
			return client.SendMsg(&answer)
		}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
		if err := behind.Close(); err != nil {
			t.Error(err)
		}
	})
	return at
}
