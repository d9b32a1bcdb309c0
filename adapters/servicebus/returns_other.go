//go:build !amd64

package servicebus

func returns() uintptr { return 0 } // see returnsHold
