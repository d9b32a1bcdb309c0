package sqlite

import "github.com/onceline/onceline/dedup/internal/sqltx"

// calls has the methods of [dedup.CallDriver].
type calls = sqltx.Calls

func (s *Store) newCalls() *calls {
	return sqltx.NewCalls(sqltx.CallDialect{
		Package: "dedup/sqlite", Key: "key", First: "first",
		Text:     func(text string) any { return text },
		Conflict: " ON CONFLICT DO NOTHING",
		Expire:   "DELETE FROM onceline_call WHERE key IN (SELECT key FROM onceline_call WHERE consumer = ? AND state IN (2, 4) AND changed < ? LIMIT ?)", Chunk: chunk,
		Transact: s.Transact,
	})
}
