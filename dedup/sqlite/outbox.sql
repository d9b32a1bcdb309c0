-- Messages that were committed with the data that they tell of, until a relay has
-- sent them. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS onceline_outbox (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	topic TEXT NOT NULL,
	lane INTEGER NOT NULL,
	hash INTEGER NOT NULL, -- of the ordering key; 0: none
	state INTEGER NOT NULL DEFAULT 0, -- 0 waiting, 1 held, 2 parked
	attempts INTEGER NOT NULL DEFAULT 0,
	at INTEGER NOT NULL, -- the message's time
	added INTEGER NOT NULL,
	tried INTEGER, -- when the broker may first have stored it
	due INTEGER, -- not to be tried before
	reason TEXT,
	id BLOB NOT NULL,
	key BLOB NOT NULL,
	meta BLOB NOT NULL,
	body BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS onceline_outbox_waiting ON onceline_outbox (topic, lane, seq) WHERE state = 0;
CREATE INDEX IF NOT EXISTS onceline_outbox_stopped ON onceline_outbox (topic, hash, seq) WHERE state <> 0 OR due IS NOT NULL;

-- The rows of a lane that the relay which has it sends: those up to a number, since
-- when. What stands here when its time is over is left of a relay that ended before
-- it could say what became of them.
CREATE TABLE IF NOT EXISTS onceline_outbox_lane (
	topic TEXT NOT NULL,
	lane INTEGER NOT NULL,
	upto INTEGER NOT NULL,
	since INTEGER NOT NULL,
	turn INTEGER NOT NULL, -- a random number of the turn
	until INTEGER NOT NULL, -- nobody else takes the lane before
	PRIMARY KEY (topic, lane)
) WITHOUT ROWID, STRICT;
