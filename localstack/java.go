package localstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// findJava returns the path of a Java of at least that version, by JAVA_HOME or
// PATH, and the version it says.
func findJava(ctx context.Context, atLeast int, who string) (path, version string, err error) {
	needs := func(why string) error {
		return fmt.Errorf("%w: %s needs Java %d or newer (%s): install a JRE, on Debian openjdk-17-jre-headless, or set JAVA_HOME", ErrNotInstalled, who, atLeast, why)
	}
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path = filepath.Join(home, "bin", "java")
	} else if path, err = exec.LookPath("java"); err != nil {
		return "", "", needs("there is no java on PATH")
	}
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		if context.Cause(ctx) != nil {
			return "", "", fmt.Errorf("localstack: %s: %w", who, context.Cause(ctx))
		}
		return "", "", needs(fmt.Sprintf("%s does not run: %v", path, err))
	}
	version, major := javaVersion(string(out))
	if major < atLeast {
		return "", "", needs(fmt.Sprintf("%s is version %q", path, version))
	}
	return path, version, nil
}

var javaVersionLine = regexp.MustCompile(`version "((?:1\.)?(\d+)[^"]*)"`)

// javaVersion reads what java -version writes.
func javaVersion(out string) (version string, major int) {
	m := javaVersionLine.FindStringSubmatch(out)
	if m == nil {
		return "", 0
	}
	major, _ = strconv.Atoi(m[2]) // digits, by the expression
	return m[1], major
}

// dependencyPlugin is the Maven plugin that resolves a class path.
const dependencyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

// classPath returns the class path of a project file, resolved by Maven at the
// first time and from the cache later, as long as all of its files are there.
func (c *serverConfig) classPath(ctx context.Context, who string, pom []byte) (string, error) {
	dir, err := c.cache("classpath")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(pom)
	file := filepath.Join(dir, hex.EncodeToString(sum[:8]))
	if b, err := os.ReadFile(file); err == nil && allExist(string(b)) {
		return string(b), nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("%w: %s is resolved by Maven, and there is no mvn on PATH: install Maven, on Debian the package maven", ErrNotInstalled, who)
	}
	c.progress("%s: resolving its class path with Maven", who)
	work, err := os.MkdirTemp("", "onceline-maven-")
	if err != nil {
		return "", fmt.Errorf("localstack: %s: %w", who, err)
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o600); err != nil {
		return "", fmt.Errorf("localstack: %s: %w", who, err)
	}
	out := filepath.Join(work, "classpath")
	p, err := serverCommand{
		name: "maven for " + who, path: mvn, dir: work, log: filepath.Join(work, "log"),
		args: []string{"--batch-mode", "--quiet", "--no-transfer-progress", dependencyPlugin + ":build-classpath", "-Dmdep.outputFile=" + out},
	}.run()
	if err != nil {
		return "", err
	}
	if err := p.wait(ctx); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("%w: %s could not be resolved: %w%s", ErrNotInstalled, who, err, p.said())
		}
		return "", err
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return "", fmt.Errorf("localstack: %s: Maven resolved nothing: %w", who, err)
	}
	path := string(bytes.TrimSpace(b))
	if err := writeWhole(file, []byte(path)); err != nil {
		return "", fmt.Errorf("localstack: %s: cache: %w", who, err)
	}
	return path, nil
}

// wait waits for the end of a process that ends by itself, and kills it when the
// context ends first.
func (p *serverProcess) wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		_ = p.kill()
		return fmt.Errorf("localstack: %s: %w", p.name, context.Cause(ctx))
	}
}

func allExist(classPath string) bool {
	for _, file := range strings.Split(classPath, string(os.PathListSeparator)) {
		if _, err := os.Stat(file); err != nil {
			return false
		}
	}
	return true
}

// writeWhole writes a file that others may be reading.
func writeWhole(file string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
