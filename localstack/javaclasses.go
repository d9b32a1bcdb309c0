package localstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// classArchive is a file of the classes that a Java server loads, read and verified:
// the next start of the server maps them (application class-data sharing, JEP 350),
// which saves it close to half of its CPU time. It is made by a start of the server
// for nothing else, the first time.
type classArchive struct {
	name          string // of the server and its release, fit for a file
	who           string // for people
	java, version string
	classPath     string
	alsoBy        []string // what else an archive is made for
	train         func(ctx context.Context, dir string, jvm []string) error
}

const (
	// archivesSince is the first Java that writes such an archive by itself.
	archivesSince = 13
	// archiveWithin bounds the start that makes one.
	archiveWithin = 2 * time.Minute
	// archiveStale is the age from which archives of the same server are removed when
	// another one has been made: those of other Javas, and what a killed process left.
	archiveStale = 30 * 24 * time.Hour
)

// archiving has what this process knows of each archive that it asked for.
var archiving = struct {
	sync.Mutex
	of map[string]*archiveState // by folder, name and key
}{of: map[string]*archiveState{}}

type archiveState struct {
	turn chan struct{} // holds one token, of who may look and make
	done bool          // what can be had is known; it and what follows for who has the token
	file string        // "" for none
	info os.FileInfo   // of the file as it was looked through
}

// sharing returns the JVM's arguments that make it map the archive's classes: none
// where there is no archive and none can be made, which costs no more than time. A
// JVM leaves an archive aside by itself that was made by another JVM or of other
// files, but dies of a damaged one, so that is looked for here. Several processes may
// make the same one at once. It ends early with ctx.
func (c *serverConfig) sharing(ctx context.Context, a *classArchive) []string {
	if a == nil || javaMajor(a.version) < archivesSince {
		return nil
	}
	dir, err := c.cache("classes")
	if err != nil {
		return nil
	}
	key, err := a.key()
	if err != nil {
		return nil
	}
	prefix := filepath.Join(dir, a.name+"-"+key+"-")
	archiving.Lock()
	state := archiving.of[prefix]
	if state == nil {
		state = &archiveState{turn: make(chan struct{}, 1)}
		state.turn <- struct{}{}
		archiving.of[prefix] = state
	}
	archiving.Unlock()
	select {
	case <-state.turn:
	case <-ctx.Done():
		return nil
	}
	defer func() { state.turn <- struct{}{} }()
	if info, err := os.Stat(state.file); state.done && state.file != "" && (err != nil || info.Size() != state.info.Size() || !info.ModTime().Equal(state.info.ModTime())) {
		state.done = false // somebody changed it, or cleaned up
	}
	if !state.done {
		if state.file, state.done = findArchive(prefix); !state.done {
			c.progress("%s: archiving its classes, once", a.who)
			if state.file, err = a.make(ctx, prefix); err != nil && ctx.Err() != nil {
				return nil
			}
			state.done = true // this process doesn't try again what failed
		}
		if state.info, err = os.Stat(state.file); err != nil {
			state.file = ""
		}
	}
	if state.file == "" {
		return nil
	}
	return []string{"-XX:SharedArchiveFile=" + state.file, "-Xlog:cds*=off"}
}

// Files of a prefix end in their checksum; one of nothing says that the JVM writes
// none.
const (
	archiveEnd = ".jsa"
	noArchive  = "none"
)

// findArchive returns the whole archive of that prefix, or that there can't be one.
// Damaged ones are removed.
func findArchive(prefix string) (file string, known bool) {
	files, _ := filepath.Glob(prefix + "*")
	for _, file := range files {
		if file == prefix+noArchive {
			return "", true
		}
		if sum, err := checksum(file); err == nil && file == prefix+sum+archiveEnd {
			return file, true
		}
		_ = os.Remove(file)
	}
	return "", false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum finds damage and is quick: an archive has 50 MB.
func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// make makes the archive, and returns its file. Where the server ended as it should
// and its JVM wrote none, it keeps that, so that nobody tries again.
func (a *classArchive) make(ctx context.Context, prefix string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, archiveWithin, fmt.Errorf("not done within %v", archiveWithin))
	defer cancel()
	dir, err := os.MkdirTemp(filepath.Dir(prefix), a.name+"-making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "classes")
	if err := a.train(ctx, dir, []string{"-XX:ArchiveClassesAtExit=" + made, "-Xlog:disable"}); err != nil {
		return "", err
	}
	sum, err := checksum(made)
	if errors.Is(err, os.ErrNotExist) {
		return "", writeWhole(prefix+noArchive, nil)
	}
	if err != nil {
		return "", err
	}
	a.sweep(filepath.Dir(prefix))
	if file, known := findArchive(prefix); known { // another process was first
		return file, nil
	}
	file := prefix + sum + archiveEnd
	if err := os.Rename(made, file); err != nil {
		return "", err
	}
	return file, nil
}

// sweep removes what is stale of the server's archives.
func (a *classArchive) sweep(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, a.name+"-*"))
	for _, file := range old {
		if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) > archiveStale {
			_ = os.RemoveAll(file) // it may be in use, where that matters
		}
	}
}

// key tells apart what the JVM would refuse: another Java, and other files.
func (a *classArchive) key() (string, error) {
	h := sha256.New()
	java, err := filepath.EvalSymlinks(a.java)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s\n%q\n", a.version, a.alsoBy)
	for _, file := range append([]string{java}, strings.Split(a.classPath, string(os.PathListSeparator))...) {
		info, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d %d\n", file, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// javaMajor returns the number of a Java's release, of 17.0.15 or 1.8.0; 0 for what
// it doesn't understand.
func javaMajor(version string) int {
	version = strings.TrimPrefix(version, "1.")
	digits := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(version)
	}
	major, _ := strconv.Atoi(version[:digits])
	return major
}

// finish asks a process for its clean end, and waits for it longer than a stop does:
// for what the process writes then. An exit status is none of an error, Java says 143
// of a SIGTERM; one that was killed is.
func (p *serverProcess) finish(ctx context.Context) error {
	p.terminate()
	select {
	case <-p.exited:
		var exit *exec.ExitError
		if errors.As(p.err, &exit) && exit.ExitCode() < 0 {
			return fmt.Errorf("localstack: %s: %w%s", p.name, p.err, p.said())
		}
		return nil
	case <-ctx.Done():
		_ = p.kill()
		return fmt.Errorf("localstack: %s: %w", p.name, context.Cause(ctx))
	}
}
