-- Messages that were committed with the data that they tell of, until a relay has
-- sent them. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {schema}.onceline_outbox (
	seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1), -- a cache would turn the order of sessions
	topic text NOT NULL,
	lane smallint NOT NULL,
	hash bigint NOT NULL, -- of the ordering key; 0: none
	state smallint NOT NULL DEFAULT 0, -- 0 waiting, 1 held, 2 parked
	attempts integer NOT NULL DEFAULT 0,
	at bigint NOT NULL, -- the message's time
	added bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000,
	tried bigint, -- when the broker may first have stored it
	due bigint, -- not to be tried before
	reason text,
	id bytea NOT NULL,
	key bytea NOT NULL,
	meta bytea NOT NULL,
	body bytea NOT NULL,
	CONSTRAINT onceline_outbox_pkey PRIMARY KEY (seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS onceline_outbox_waiting ON {schema}.onceline_outbox (topic, lane, seq) WHERE state = 0;
CREATE INDEX IF NOT EXISTS onceline_outbox_stopped ON {schema}.onceline_outbox (topic, hash, seq) WHERE state <> 0 OR due IS NOT NULL;

-- The rows of a lane that the relay which has it is about to send: those up to a
-- number, since when. What stands here beside a lane that nobody has is left of a
-- relay that ended before it could say what became of them.
CREATE TABLE IF NOT EXISTS {schema}.onceline_outbox_lane (
	topic text NOT NULL,
	lane smallint NOT NULL,
	upto bigint NOT NULL,
	since bigint NOT NULL,
	turn bigint NOT NULL, -- a random number of the turn
	CONSTRAINT onceline_outbox_lane_pkey PRIMARY KEY (topic, lane)
) WITH (fillfactor = 50);
