
-- For each topic that is relayed in transactions of its broker: the term of the
-- process that does, and what it has prepared there.
CREATE TABLE IF NOT EXISTS onceline_outbox_relay (
	topic TEXT PRIMARY KEY,
	term INTEGER NOT NULL,
	token BLOB, -- NULL: nothing is prepared
	seqs TEXT -- of its rows, as JSON
) WITHOUT ROWID, STRICT;
