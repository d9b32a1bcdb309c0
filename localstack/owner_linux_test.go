package localstack

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

func TestOwnerOf(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	local, peer := c.LocalAddr().(*net.TCPAddr).Port, ln.Addr().(*net.TCPAddr).Port
	for _, k := range []struct {
		name        string
		local, peer int
		pids        []int
		want        int
	}{
		{"this process", local, peer, []int{1, os.Getpid()}, 1},
		{"this process's group", local, peer, []int{0, groupOf(os.Getpid())}, 1},
		{"none of them", local, peer, []int{0, 1}, -1},
		{"no such socket", peer, local + 1, []int{os.Getpid()}, -1},
	} {
		if k.name == "none of them" && groupOf(os.Getpid()) == 1 {
			continue
		}
		if got := ownerOf(k.local, k.peer, k.pids); got != k.want {
			t.Errorf("%s: %d, want %d", k.name, got, k.want)
		}
	}
}

func TestSocketIn(t *testing.T) {
	table := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0000000000000000 100 0 0 10 0
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:C350 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 20 4 30 10 -1
`
	for _, k := range []struct {
		local, peer int
		want        string
	}{{50000, 8080, "12"}, {8080, 0, "11"}, {8080, 50000, ""}, {50000, 8081, ""}} {
		if got := socketIn(table, k.local, k.peer); got != k.want {
			t.Errorf("%d to %d: %q, want %q", k.local, k.peer, got, k.want)
		}
	}
}

// A process whose name looks like the rest of the line is read all the same.
func TestGroupOf(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := os.WriteFile("/proc/"+strconv.Itoa(os.Getpid())+"/comm", []byte("a) S 1 2"), 0o644); err != nil {
		t.Skip("this process can't be renamed")
	}
	if got, want := groupOf(os.Getpid()), groupOf(cmd.Process.Pid); got != want || got < 1 {
		t.Errorf("group %d, and %d of the child", got, want)
	}
	if got := groupOf(1 << 30); got != -1 {
		t.Errorf("group %d of nobody", got)
	}
}
