package ownadapter

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// spool is a topic's folder. Each message is one file in it. Its name is
//
//	SEQUENCE.ATTEMPTS.FREE
//
// where FREE is when it may be taken, in nanoseconds since 1970: 0 at once, later for
// one that is held or was given back with a delay.
type spool struct{ dir string }

// settings are in a topic's file "settings.json".
type settings struct {
	Lease time.Duration `json:"lease"`
}

const (
	defaultLease = 30 * time.Second
	settingsFile = "settings.json"
	dead         = "dead" // the folder of dead letters, in the topic's
	attemptsAt   = 1      // of the parts of a name
	freeAt       = 2
)

// record is what a file holds. It isn't JSON, which has no place for an ID or header
// that isn't valid UTF-8: the suite asks (publish.id.charset).
type record struct {
	broker.Message
	Reason string // of a dead letter
}

func encode(r record) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(r)
	return b.Bytes(), err
}

var sequence atomic.Uint64

// add stores a message: as a hidden file first, which nobody takes.
func (s spool) add(m *broker.Message) (seq uint64, err error) {
	b, err := encode(record{Message: *m})
	if err != nil {
		return 0, err
	}
	// The process ID tells apart what two processes store in the same nanosecond.
	seq = max(sequence.Add(1), uint64(time.Now().UnixNano()))
	sequence.Store(seq)
	name := fmt.Sprintf("%020d-%d", seq, os.Getpid())
	hidden := filepath.Join(s.dir, "."+name)
	if err := writeSynced(hidden, b); err != nil {
		return 0, err
	}
	return seq, os.Rename(hidden, filepath.Join(s.dir, name+".0.0"))
}

// writeSynced returns when the bytes are on the disk: a receipt is a promise.
func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// held is a message in a consumer's hands.
type held struct {
	path    string // of its file, as this holder knows it
	record  record
	seq     uint64
	attempt int
	until   time.Time
}

// take takes up to n messages for a lease.
func (s spool) take(n int, lease time.Duration) ([]*held, error) {
	files, err := os.ReadDir(s.dir) // sorted by name: by sequence
	if err != nil {
		return nil, err
	}
	var out []*held
	for _, f := range files {
		parts := strings.Split(f.Name(), ".")
		if len(out) == n || len(parts) != 3 || parts[0] == "" {
			continue // the settings, dead letters, what is being written
		}
		free, _ := strconv.ParseInt(parts[freeAt], 10, 64)
		attempts, _ := strconv.Atoi(parts[attemptsAt])
		now := time.Now()
		if free > now.UnixNano() {
			continue
		}
		h := &held{path: filepath.Join(s.dir, f.Name()), attempt: attempts + 1}
		if moved, err := h.move(parts[0], now.Add(lease)); err != nil || !moved {
			if err != nil {
				return out, err
			}
			continue // another was faster
		}
		b, err := os.ReadFile(h.path)
		if err == nil {
			err = gob.NewDecoder(bytes.NewReader(b)).Decode(&h.record)
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", f.Name(), err)
		}
		number, _, _ := strings.Cut(parts[0], "-")
		h.seq, _ = strconv.ParseUint(number, 10, 64)
		out = append(out, h)
	}
	return out, nil
}

// move renames the file so that it is free at a time. It reports false if the file has
// another name by now: the lease had ended and somebody else has it.
func (h *held) move(name string, free time.Time) (bool, error) {
	to := filepath.Join(filepath.Dir(h.path), fmt.Sprintf("%s.%d.%d", name, h.attempt, free.UnixNano()))
	err := os.Rename(h.path, to)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		h.path, h.until = to, free
	}
	return err == nil, err
}

func (h *held) name() string {
	name, _, _ := strings.Cut(filepath.Base(h.path), ".")
	return name
}

// remove ends the message; false as of move.
func (h *held) remove() (bool, error) {
	err := os.Remove(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// bury makes a dead letter of the message; false as of move. A crash between its two
// steps leaves both: a copy more, none less.
func (h *held) bury(reason string) (bool, error) {
	h.record.Reason = reason
	b, err := encode(h.record)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(h.path); err != nil {
		return false, nil
	}
	if err := writeSynced(filepath.Join(filepath.Dir(h.path), dead, h.name()), b); err != nil {
		return false, err
	}
	return h.remove()
}

// poll waits a little for what others store; false if ctx has ended.
func poll(ctx context.Context) bool {
	t := time.NewTimer(5 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// validName keeps names inside the folder.
func validName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, `/\`) && !slices.Contains([]string{settingsFile, dead}, name)
}
