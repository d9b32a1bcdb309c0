package localstack

import (
	"context"
	_ "embed" // what it needs
	"path/filepath"
)

//go:embed localstackserver/requirements.txt
var localStackRequirements []byte

// localStackRelease is the one in localstackserver/requirements.txt.
const localStackRelease = "4.13.1"

// StartLocalStack runs LocalStack, a model of AWS by others, with its SQS provider
// alone, in a child process and without Docker, and returns when it takes clients. It
// needs Python 3.10 or newer with venv and, at the first time, pip, which installs it
// in a virtual environment in the cache directory (200 MB); without them it returns an
// error that is [ErrNotInstalled]. The release is of the edition that needs no token;
// it reports nothing to its makers and downloads nothing as it runs. It keeps nothing
// over Restart and Kill. Faults are those of package localstack/sqs.
func StartLocalStack(ctx context.Context, options ...ServerOption) (*Server, error) {
	c := newServerConfig(options)
	python, err := c.python(ctx, "LocalStack "+localStackRelease, localStackRequirements)
	if err != nil {
		return nil, err
	}
	return openSQSServer(ctx, &emulator{name: SQSName, versions: map[string]string{"localstack": localStackRelease}}, &singleServer{
		name: "LocalStack " + localStackRelease, config: c,
		// Asked to stop, it may wait for ever for requests whose clients have gone. It has
		// nothing to save.
		halt: func(p *serverProcess) { _ = p.kill() },
		command: func(dir string, port int) (serverCommand, error) {
			return serverCommand{name: "localstack", path: python, dir: dir, log: filepath.Join(dir, "server.log"),
				args: []string{"-m", "localstack.runtime.main"}, env: localStackEnv(dir, port)}, nil
		},
	})
}

// localStackEnv are LocalStack's settings, which come by the environment alone.
func localStackEnv(dir string, port int) []string {
	return []string{
		"SERVICES=sqs", "EAGER_SERVICE_LOADING=1", "STRICT_SERVICE_LOADING=1",
		"GATEWAY_LISTEN=" + loopback(port),
		"GATEWAY_SERVER=hypercorn",         // the default one listens on all addresses
		"SQS_ENDPOINT_STRATEGY=dynamic",    // URLs of queues lead where the client came from: to the proxy
		"SQS_DISABLE_CLOUDWATCH_METRICS=1", // of a service that isn't loaded
		"DISABLE_EVENTS=1", "SKIP_SSL_CERT_DOWNLOAD=1", "DNS_ADDRESS=0",
		"DEBUG=0", "LS_LOG=info", "PERSISTENCE=0",
		"FILESYSTEM_ROOT=" + filepath.Join(dir, "files"), "XDG_CACHE_HOME=" + filepath.Join(dir, "cache"),
	}
}
