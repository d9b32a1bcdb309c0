//go:build !race

package bubbletest

const race = false
