-- Markers of messages that carry no time of their business event.
CREATE TABLE IF NOT EXISTS onceline_marker (
	key BLOB PRIMARY KEY CHECK (length(key) = 16),
	seen INTEGER NOT NULL -- seconds since 1970
) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS onceline_marker_seen ON onceline_marker (seen);

-- Markers that begin with the time of the business event, and are deleted by it.
CREATE TABLE IF NOT EXISTS onceline_marker_timed (
	key BLOB PRIMARY KEY CHECK (length(key) = 16)
) WITHOUT ROWID, STRICT;

-- What is below this marker may have been deleted.
CREATE TABLE IF NOT EXISTS onceline_floor (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	key BLOB NOT NULL CHECK (length(key) = 16)
) STRICT;
INSERT INTO onceline_floor (one, key) VALUES (1, zeroblob(16)) ON CONFLICT DO NOTHING;

-- The offset of the last message applied.
CREATE TABLE IF NOT EXISTS onceline_position (
	consumer TEXT NOT NULL,
	topic TEXT NOT NULL,
	epoch TEXT NOT NULL,
	partition TEXT NOT NULL,
	last INTEGER NOT NULL,
	PRIMARY KEY (consumer, topic, epoch, partition)
) WITHOUT ROWID, STRICT;

-- External calls, one row each: see dedup.Call. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS onceline_call (
	key BLOB PRIMARY KEY CHECK (length(key) = 16),
	consumer TEXT NOT NULL,
	id BLOB NOT NULL,
	state INTEGER NOT NULL, -- 1 started, 2 done, 3 unresolved, 4 free
	version INTEGER NOT NULL,
	token BLOB NOT NULL,
	attempts INTEGER NOT NULL,
	first INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	due INTEGER NOT NULL,
	request BLOB,
	result BLOB,
	note TEXT NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS onceline_call_open ON onceline_call (consumer, key) WHERE state IN (1, 3);
CREATE INDEX IF NOT EXISTS onceline_call_ended ON onceline_call (consumer, changed) WHERE state IN (2, 4);
