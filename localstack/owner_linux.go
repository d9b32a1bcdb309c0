package localstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// canTellOwners says why ownerOf can't work here; nil if it can.
func canTellOwners() error {
	_, err := os.Stat("/proc/net/tcp")
	return err
}

// ownerOf returns which of the processes holds the end of a TCP connection that has
// the local port and the peer's port, -1 for none of them. A process is one with that
// ID, or one of the process group that it leads.
func ownerOf(local, peer int, pids []int) int {
	inode := socketOf(local, peer)
	if inode == "" {
		return -1
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return -1
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if n := memberOf(pid, pids); n >= 0 && holds(pid, inode) {
			return n
		}
	}
	return -1
}

// socketOf returns the inode of the socket with these ports, "" for none.
func socketOf(local, peer int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if b, err := os.ReadFile(table); err == nil {
			if inode := socketIn(string(b), local, peer); inode != "" {
				return inode
			}
		}
	}
	return ""
}

// socketIn finds the socket in the kernel's table.
func socketIn(table string, local, peer int) string {
	mine, other := fmt.Sprintf(":%04X", local), fmt.Sprintf(":%04X", peer)
	for line := range strings.Lines(table) {
		// sl local remote state queues timer retransmits uid timeout inode
		f := strings.Fields(line)
		if len(f) > 9 && strings.HasSuffix(f[1], mine) && strings.HasSuffix(f[2], other) && f[9] != "0" {
			return f[9]
		}
	}
	return ""
}

// memberOf returns to which of the processes pid belongs, -1 for none.
func memberOf(pid int, pids []int) int {
	group := 0
	for n, of := range pids {
		switch {
		case of == 0:
		case of == pid:
			return n
		default:
			if group == 0 {
				group = groupOf(pid)
			}
			if group == of {
				return n
			}
		}
	}
	return -1
}

// groupOf returns the process group of a process, -1 if it has gone.
func groupOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	// pid (name, which may hold anything) state parent group …
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	if f := strings.Fields(rest); len(f) > 2 {
		if group, err := strconv.Atoi(f[2]); err == nil {
			return group
		}
	}
	return -1
}

// holds reports whether a process has the socket open.
func holds(pid int, inode string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, entry := range entries {
		if to, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && to == "socket:["+inode+"]" {
			return true
		}
	}
	return false
}
