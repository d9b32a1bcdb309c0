-- Messages that were committed with the data that they tell of, until a relay has
-- sent them. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS onceline_outbox (
	seq BIGINT NOT NULL AUTO_INCREMENT,
	topic VARBINARY(255) NOT NULL,
	lane SMALLINT NOT NULL,
	hash BIGINT NOT NULL, -- of the ordering key; 0: none
	state TINYINT NOT NULL DEFAULT 0, -- 0 waiting, 1 held, 2 parked
	attempts INT NOT NULL DEFAULT 0,
	at BIGINT NOT NULL, -- the message's time
	added BIGINT NOT NULL,
	tried BIGINT, -- when the broker may first have stored it
	due BIGINT, -- not to be tried before
	blocks BIGINT AS (CASE WHEN state <> 0 OR due IS NOT NULL THEN hash END) STORED, -- whose later rows may have to wait
	reason BLOB,
	id BLOB NOT NULL,
	ordering BLOB NOT NULL,
	meta LONGBLOB NOT NULL,
	body LONGBLOB NOT NULL,
	PRIMARY KEY (seq),
	KEY onceline_outbox_waiting (topic, state, lane, seq),
	KEY onceline_outbox_blocks (topic, blocks, seq)
) ENGINE = InnoDB;

-- A row to lock for each lane of a topic, with the rows that the relay which has it is
-- about to send: those up to a number, since when. What stands here beside a lane that
-- nobody has is left of a relay that ended before it could say what became of them.
CREATE TABLE IF NOT EXISTS onceline_outbox_lane (
	topic VARBINARY(255) NOT NULL,
	lane SMALLINT NOT NULL,
	upto BIGINT NOT NULL,
	since BIGINT NOT NULL,
	turn BIGINT NOT NULL, -- a random number of the turn
	PRIMARY KEY (topic, lane)
) ENGINE = InnoDB;

-- For each topic that is relayed in transactions of its broker: the term of the
-- process that does, and what it has prepared there.
CREATE TABLE IF NOT EXISTS onceline_outbox_relay (
	topic VARBINARY(255) NOT NULL,
	term BIGINT NOT NULL,
	token LONGBLOB, -- NULL: nothing is prepared
	seqs LONGBLOB, -- of its rows, with commas between
	PRIMARY KEY (topic)
) ENGINE = InnoDB;
