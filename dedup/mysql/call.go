package mysql

import "github.com/onceline/onceline/dedup/internal/sqltx"

// calls has the methods of [dedup.CallDriver].
type calls = sqltx.Calls

func (s *Store) newCalls() *calls {
	return sqltx.NewCalls(sqltx.CallDialect{
		Package: "dedup/mysql", Key: "marker", First: "began",
		Text:   func(text string) any { return []byte(text) },
		Check:  checkNames,
		Exists: func(err error) bool { return number(err) == duplicateKey }, // which undoes the statement alone
		Expire: "DELETE FROM onceline_call WHERE consumer = ? AND state IN (2, 4) AND changed < ? LIMIT ?", Chunk: chunk,
		Transact: s.Transact,
	})
}
