// Package amqp is the part of AMQP 1.0 that the Service Bus emulator speaks: the
// type system, frames and performatives, and the sections of a message.
//
// It reads from buffers and appends to buffers. What it reads comes from anywhere,
// so nothing panics, recursion is bounded by [MaxDepth], and what is allocated is
// bounded by what was read. What it keeps aliases the buffer it was read from,
// where a comment says so.
package amqp
