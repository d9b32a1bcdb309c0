package servicebus

// returns is where the function that calls it returns to, read from the frame pointers
// that Go keeps: [runtime.Callers] walks frames by tables, which is most of what a
// settle would cost here. It holds for a caller that is not inlined.
func returns() uintptr
