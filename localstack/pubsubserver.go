package localstack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// StartPubSubEmulator runs the Pub/Sub emulator of the Google Cloud CLI in a child
// process, and returns when it takes clients. It needs Java 11, and the emulator's
// archive: the one that the variable ONCELINE_PUBSUB_JAR names, or that of an
// installed CLI; without them it returns an error that is [ErrNotInstalled].
//
// Real is false: it is Google's own, but it is not the service, and says so itself.
// It keeps nothing over Restart and Kill. Faults are those of package
// localstack/pubsub. It takes about a second to start and 200 MB of memory.
func StartPubSubEmulator(ctx context.Context, options ...ServerOption) (*Server, error) {
	c := newServerConfig(options)
	jar, err := findPubSub()
	if err != nil {
		return nil, err
	}
	java, version, err := findJava(ctx, 11, "the Pub/Sub emulator")
	if err != nil {
		return nil, err
	}
	release := "unknown"
	if m := pubsubJar.FindStringSubmatch(filepath.Base(jar)); m != nil {
		release = m[1]
	}
	e := &emulator{name: PubSubName, versions: map[string]string{"pubsub-emulator": release, "java": version}, checkAPI: checkPubSubAPI}
	b := &singleServer{
		name: "Pub/Sub emulator " + release, config: c,
		command: func(dir string, port int) (serverCommand, error) {
			return serverCommand{name: "pubsub emulator", path: java, dir: dir, log: filepath.Join(dir, "server.log"), args: []string{
				"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", jar, "--host=127.0.0.1", fmt.Sprint("--port=", port)}}, nil
		},
		ready: accepting,
		front: func(address string) (serverFront, error) { return newPubSubFront(address, e) },
	}
	b.classes = &classArchive{name: "pubsub-" + release, who: b.name, java: java, version: version, classPath: jar, train: b.train}
	return openSingle(ctx, e, b)
}

var pubsubJar = regexp.MustCompile(`^cloud-pubsub-emulator-(.*?)(?:-all)?\.jar$`)

// findPubSub returns the path of the emulator's archive.
func findPubSub() (string, error) {
	if jar := os.Getenv("ONCELINE_PUBSUB_JAR"); jar != "" {
		if _, err := os.Stat(jar); err != nil {
			return "", fmt.Errorf("%w: the Pub/Sub emulator that ONCELINE_PUBSUB_JAR names: %w", ErrNotInstalled, err)
		}
		return jar, nil
	}
	roots := []string{"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk", "/usr/local/google-cloud-sdk"}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, "google-cloud-sdk"))
	}
	if gcloud, err := exec.LookPath("gcloud"); err == nil {
		if gcloud, err = filepath.EvalSymlinks(gcloud); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(gcloud)))
		}
	}
	for _, root := range roots {
		jars, err := filepath.Glob(filepath.Join(root, "platform", "pubsub-emulator", "lib", "cloud-pubsub-emulator-*.jar"))
		if err == nil && len(jars) > 0 {
			slices.Sort(jars)
			return jars[len(jars)-1], nil
		}
	}
	return "", fmt.Errorf("%w: there is no Pub/Sub emulator: install the component pubsub-emulator of the Google Cloud CLI, or set ONCELINE_PUBSUB_JAR", ErrNotInstalled)
}
