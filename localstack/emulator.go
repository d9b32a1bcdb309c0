package localstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/onceline/onceline/localstack/fault"
)

// backend is a broker as an emulator runs it: in this process or in a child.
// The emulator calls start, stop and kill one at a time.
type backend interface {
	// start runs the broker on dir and returns when it takes connections.
	start(ctx context.Context, dir string) error

	// stop ends it cleanly; without effect when it does not run.
	stop(ctx context.Context) error

	// direct returns host:port around the proxy, "" if there is none.
	direct() string
}

// killer is a backend that can be ended as by a crash, leaving dir behind. An
// emulator models the crash for one that cannot.
type killer interface {
	kill(ctx context.Context) error
}

// discarder is a backend that ends sooner where nobody will read what it leaves.
type discarder interface {
	discard(ctx context.Context) error
}

// emulator is what all emulators share: one or more proxies that keep the
// address, the faults, the data directory, and a backend that comes and goes.
type emulator struct {
	name     string
	real     bool
	versions map[string]string
	faults   fault.Set
	trace    tracer
	checkAPI func(api string) error
	proxies  []*proxy
	between  *mesh // between the nodes of a cluster; nil for none
	backend  backend

	address string // fixed by open

	dir     string
	tempDir bool // dir is ours to remove

	mu     sync.Mutex // one lifecycle call at a time; taken by lock
	closed bool
	broken error // why the broker does not run
}

// open readies the data directory, starts the backend and lets clients in. On
// error it cleans up.
func (e *emulator) open(ctx context.Context, dir string) error {
	var err error
	if e.dir = dir; dir == "" {
		e.tempDir = true
		if e.dir, err = os.MkdirTemp("", "onceline-"+e.name+"-"); err != nil {
			err = fmt.Errorf("localstack: %s: %w", e.name, err)
		}
	}
	if err == nil {
		err = e.backend.start(ctx, e.dir)
	}
	if err != nil {
		return errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	addrs := make([]string, len(e.proxies))
	for i, p := range e.proxies {
		addrs[i] = p.addr()
	}
	e.address = strings.Join(addrs, ",")
	e.each((*proxy).resume)
	return nil
}

func (e *emulator) each(f func(*proxy)) {
	for _, p := range e.proxies {
		f(p)
	}
}

// Name returns the name by which the emulator was started.
func (e *emulator) Name() string { return e.name }

// Real says whether this is the vendor's own server, and not a model of it.
func (e *emulator) Real() bool { return e.real }

// urlOf is what broker.Open takes for the broker of a name.
func urlOf(name, address string) string {
	url := name + "://" + address
	switch {
	case address == "": // it didn't start
		return ""
	case name == SQSName:
		return url + "/?anonymous=true"
	case name == PubSubName:
		return url + "/" + Project
	}
	return url
}

// URL returns the address for clients, through the fault proxy.
func (e *emulator) URL() string { return urlOf(e.name, e.address) }

// Address returns host:port for clients, one for each broker.
func (e *emulator) Address() string { return e.address }

// DirectURL returns an address of the same broker around the fault proxy, or URL
// where there is none.
func (e *emulator) DirectURL() string {
	if direct := e.backend.direct(); direct != "" {
		return urlOf(e.name, direct)
	}
	return e.URL()
}

// Versions returns the versions of what runs, by component.
func (e *emulator) Versions() map[string]string {
	v := make(map[string]string, len(e.versions))
	for k, s := range e.versions {
		v[k] = s
	}
	return v
}

// Inject arms a fault until it is used up or removed.
func (e *emulator) Inject(f Fault) *Injection {
	var err error
	if f.API != "" {
		err = e.checkAPI(f.API)
	}
	return e.faults.Inject(f, err)
}

// Trace calls f with a line for each request from now on; nil ends it.
func (e *emulator) Trace(f func(line string)) { e.trace.set(f) }

// Freeze stops all bytes in both directions on all connections.
func (e *emulator) Freeze() { e.each(func(p *proxy) { p.gate.close() }) }

// Thaw ends Freeze.
func (e *emulator) Thaw() { e.each(func(p *proxy) { p.gate.open() }) }

// Slow makes all connections slow, until it is called again.
func (e *emulator) Slow(s Slowness) { e.each(func(p *proxy) { p.gate.slowDown(s) }) }

// Disconnect closes all client connections and returns how many there were.
func (e *emulator) Disconnect() int {
	n := 0
	e.each(func(p *proxy) { n += p.disconnect() })
	return n
}

// usable is called with mu held.
func (e *emulator) usable() error {
	if e.closed {
		return fmt.Errorf("%w (%s)", ErrClosed, e.name)
	}
	return e.broken
}

// Restart stops the broker cleanly and starts it again on its data.
func (e *emulator) Restart(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return err
	}
	e.each((*proxy).pause)
	err := e.backend.stop(ctx)
	e.Disconnect()
	return e.again(ctx, "restart", err)
}

// Kill ends the broker as a crash would and starts it again on what that left.
func (e *emulator) Kill(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return err
	}
	e.each((*proxy).pause)
	if k, ok := e.backend.(killer); ok {
		err := k.kill(ctx)
		e.Disconnect()
		return e.again(ctx, "kill", err)
	}
	// The model of a crash: nothing that happens after the copy counts. The
	// gates of present connections shut first, or a publish could be confirmed
	// that the copy has missed. Whoever is behind a gate is then disconnected.
	thawed := e.freezeForKill()
	copied, err := copyAside(e.dir)
	e.Disconnect()
	thawed()
	err = errors.Join(err, e.backend.stop(ctx))
	switch {
	case err == nil:
		err = replaceDir(e.dir, copied)
	case copied != "":
		err = errors.Join(err, os.RemoveAll(copied))
	}
	return e.again(ctx, "kill", err)
}

// freezeForKill shuts all gates and returns what opens those that were open.
func (e *emulator) freezeForKill() (thaw func()) {
	var shut []*proxy
	e.each(func(p *proxy) {
		if p.gate.close() {
			shut = append(shut, p)
		}
	})
	return func() {
		for _, p := range shut {
			p.gate.open()
		}
	}
}

// again starts the backend after it was ended with err.
func (e *emulator) again(ctx context.Context, what string, err error) error {
	if err == nil {
		err = e.backend.start(ctx, e.dir)
	}
	if err != nil {
		e.broken = fmt.Errorf("localstack: %s: %s: %w", e.name, what, err)
		return e.broken
	}
	e.each((*proxy).resume)
	return nil
}

// Close stops the broker and removes what it left. Closing again returns nil.
func (e *emulator) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	e.each(func(p *proxy) { errs = append(errs, p.close(ctx)) })
	stop := e.backend.stop
	if d, ok := e.backend.(discarder); ok && e.tempDir {
		stop = d.discard
	}
	errs = append(errs, stop(ctx), e.between.close(ctx))
	if e.tempDir && e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

// copyAside copies a directory that is in use to a new one beside it. Files that
// vanish meanwhile are left out, as they would be gone after the crash. What a broker
// writes late is small as a rule: such files are read at once, before any is written.
func copyAside(dir string) (string, error) {
	const small = 64 << 10
	var folders, large []string
	read := map[string][]byte{} // small files
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return present(err)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			folders = append(folders, rel)
			return nil
		}
		info, err := d.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
			return present(err)
		case info.Size() > small:
			large = append(large, rel)
			return nil
		}
		b, err := os.ReadFile(path)
		if err == nil {
			read[rel] = b
		}
		return present(err)
	})
	if err != nil {
		return "", err
	}
	to, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-crash-")
	if err != nil {
		return "", err
	}
	if err := writeAside(dir, to, folders, large, read); err != nil {
		return "", errors.Join(err, os.RemoveAll(to))
	}
	return to, nil
}

func writeAside(dir, to string, folders, large []string, read map[string][]byte) error {
	for _, rel := range folders {
		if err := os.MkdirAll(filepath.Join(to, rel), 0o700); err != nil {
			return err
		}
	}
	for rel, b := range read {
		if err := os.WriteFile(filepath.Join(to, rel), b, 0o600); err != nil {
			return err
		}
	}
	for _, rel := range large {
		b, err := os.ReadFile(filepath.Join(dir, rel))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, rel), b, 0o600)
		}
		if present(err) != nil {
			return err
		}
	}
	return nil
}

// present is err, unless that says that a file has vanished.
func present(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func replaceDir(dir, with string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(with, dir)
}
