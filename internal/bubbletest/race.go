//go:build race

package bubbletest

const race = true
