package localstack

import (
	"context"
	_ "embed" // what they need
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

//go:embed elasticmq/pom.xml
var elasticMQPOM []byte

//go:embed moto/requirements.txt
var motoRequirements []byte

// Releases that are run, by elasticmq/pom.xml and moto/requirements.txt.
const (
	elasticMQRelease = "1.7.1"
	motoRelease      = "5.2.5"
)

// StartElasticMQ runs ElasticMQ, a server of the SQS API by others, in a child
// process, and returns when it takes clients. It needs Java 11 and, at the first
// time, Maven, which brings it from Maven Central; without them it returns an error
// that is [ErrNotInstalled]. Queues and messages are kept over Restart and Kill. It
// takes any credentials. Faults are those of package localstack/sqs.
func StartElasticMQ(ctx context.Context, options ...ServerOption) (*Server, error) {
	c := newServerConfig(options)
	java, version, err := findJava(ctx, 11, "ElasticMQ")
	if err != nil {
		return nil, err
	}
	classPath, err := c.classPath(ctx, "ElasticMQ "+elasticMQRelease, elasticMQPOM)
	if err != nil {
		return nil, err
	}
	e := &emulator{name: SQSName, versions: map[string]string{"elasticmq": elasticMQRelease, "java": version}}
	b := &singleServer{
		name: "ElasticMQ " + elasticMQRelease, config: c,
		command: func(dir string, port int) (serverCommand, error) {
			file := filepath.Join(dir, "elasticmq.conf")
			if err := os.WriteFile(file, elasticMQConfig(dir, e.proxies[0].addr(), port), 0o600); err != nil {
				return serverCommand{}, fmt.Errorf("localstack: elasticmq: %w", err)
			}
			return serverCommand{name: "elasticmq", path: java, dir: dir, log: filepath.Join(dir, "server.log"), args: []string{
				"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dconfig.file=" + file, "-cp", classPath, "org.elasticmq.server.Main"}}, nil
		},
	}
	b.classes = &classArchive{name: "elasticmq-" + elasticMQRelease, who: b.name, java: java, version: version, classPath: classPath, train: b.train}
	return openSQSServer(ctx, e, b)
}

// elasticMQConfig makes the server say the proxy's address in the URLs of queues.
func elasticMQConfig(dir, front string, port int) []byte {
	host, frontPort, _ := strings.Cut(front, ":")
	return fmt.Appendf(nil, `include classpath("application.conf")
node-address { protocol = http, host = %q, port = %s, context-path = "" }
rest-sqs { enabled = true, bind-hostname = "127.0.0.1", bind-port = %d, sqs-limits = strict }
rest-stats { enabled = false }
queues-storage { enabled = true, path = %q }
messages-storage { enabled = true, driver-class-name = "org.h2.Driver", uri = %q }
`, host, frontPort, port, filepath.Join(dir, "queues.conf"), "jdbc:h2:"+filepath.Join(dir, "messages")+";WRITE_DELAY=0")
}

// StartMoto runs moto's server, a model of the SQS API by others, in a child
// process, and returns when it takes clients. It needs Python 3 with venv and, at
// the first time, pip, which installs moto in a virtual environment in the cache
// directory (140 MB); without them it returns an error that is [ErrNotInstalled].
// It keeps nothing over Restart and Kill. Faults are those of package
// localstack/sqs.
func StartMoto(ctx context.Context, options ...ServerOption) (*Server, error) {
	c := newServerConfig(options)
	python, err := c.python(ctx, "moto "+motoRelease, motoRequirements)
	if err != nil {
		return nil, err
	}
	return openSQSServer(ctx, &emulator{name: SQSName, versions: map[string]string{"moto": motoRelease}}, &singleServer{
		name: "moto " + motoRelease, config: c,
		command: func(dir string, port int) (serverCommand, error) {
			return serverCommand{name: "moto", path: python, dir: dir, log: filepath.Join(dir, "server.log"),
				args: []string{"-m", "moto.server", "-H", "127.0.0.1", "-p", fmt.Sprint(port)}}, nil
		},
	})
}

func newServerConfig(options []ServerOption) serverConfig {
	var c serverConfig
	for _, o := range options {
		o(&c)
	}
	return c
}

// openSQSServer opens a server of the SQS API behind a front that knows the API.
func openSQSServer(ctx context.Context, e *emulator, b *singleServer) (*Server, error) {
	client := &http.Client{Timeout: 2 * time.Second}
	b.ready = func(ctx context.Context, port int) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+loopback(port)+"/", strings.NewReader("{}"))
		if err != nil {
			return false
		}
		req.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
		req.Header.Set("Content-Type", "application/x-amz-json-1.0")
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=none")
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	b.front = func(address string) (serverFront, error) {
		client.CloseIdleConnections()
		return newSQSFront(address, &e.faults, &e.trace), nil
	}
	e.checkAPI = checkSQSAPI
	return openSingle(ctx, e, b)
}
