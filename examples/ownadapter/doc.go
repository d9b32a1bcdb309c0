// Package ownadapter shows what it takes to put a broker of one's own under the
// contract, and to let the suite find out where its guarantees end.
//
// The broker is a folder: a topic is a folder in it, a message a file in that, and
// what a consumer holds a file whose name says until when. Moving a file is atomic, so
// it works between processes, and whoever holds a stale name can't move it: this
// fences. spool.go is that broker; adapter.go puts it under package driver; boundary.go
// declares its guarantees, which the ten lines of conformance_test.go hold against what
// is observed. docs/ownadapter.md walks through it.
//
// It is an example: it looks for messages by listing a folder, which is slow where
// many wait.
package ownadapter
