package servicebus

import (
	"runtime"
	"testing"
)

// What the frames say is what the runtime says, at any depth of the stack, and where
// the processor is known they are read.
func TestReturns(t *testing.T) {
	known := runtime.GOARCH == "amd64"
	if returnsHold != known {
		t.Errorf("the frames are read: %v, on %s", returnsHold, runtime.GOARCH)
	}
	if !known {
		return
	}
	for depth := range 100 { // with stacks that grow on the way
		deep(t, depth)
	}
}

//go:noinline
func deep(t *testing.T, depth int) {
	var room [512]byte
	if depth > 0 {
		deep(t, depth-1)
	}
	if read, told := both(); read != told || placeAt(read) != elsewhere {
		t.Fatalf("at depth %d: %x, want %x", depth, read, told)
	}
	runtime.KeepAlive(&room)
}

//go:noinline
func both() (read, told uintptr) {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	return returns(), pcs[0]
}

func BenchmarkReturns(b *testing.B) {
	for b.Loop() {
		_ = returns()
	}
}

func BenchmarkCallers(b *testing.B) {
	var pcs [1]uintptr
	for b.Loop() {
		runtime.Callers(1, pcs[:])
	}
}
