package pipeline

// AtStep calls f at each step of a checkpoint and of a recovery: "prepare",
// "prepared", "recorded", "committed"; "resolved", "marked".
func AtStep[T any](p *Pipeline[T], f func(step string)) { p.step = f }
