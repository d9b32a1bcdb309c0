// Package pipeline reads sources, runs an operator with state, and writes its output,
// so that each message counts once in the state and once in the output, whatever
// crashes.
package pipeline
