
-- Pipelines, and the term of the process that owns each.
CREATE TABLE IF NOT EXISTS onceline_pipeline (
	name TEXT PRIMARY KEY,
	term INTEGER NOT NULL,
	note BLOB
) WITHOUT ROWID, STRICT;

-- Their last checkpoints: positions, state and what the sink has prepared, in the
-- form of package pipeline. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS onceline_checkpoint (
	pipeline TEXT NOT NULL,
	number INTEGER NOT NULL,
	term INTEGER NOT NULL,
	state INTEGER NOT NULL, -- 1 prepared, 2 committed, 3 lost, 4 undone
	note TEXT NOT NULL,
	taken INTEGER NOT NULL,
	data BLOB NOT NULL,
	PRIMARY KEY (pipeline, number)
) STRICT;
