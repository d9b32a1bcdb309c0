-- Markers of messages that carry no time of their business event.
CREATE TABLE IF NOT EXISTS {schema}.onceline_marker (
	key uuid NOT NULL,
	seen timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT onceline_marker_pkey PRIMARY KEY (key)
);
CREATE INDEX IF NOT EXISTS onceline_marker_seen ON {schema}.onceline_marker USING brin (seen) WITH (pages_per_range = 32);

-- Markers that begin with the time of the business event, in partitions by it.
CREATE TABLE IF NOT EXISTS {schema}.onceline_marker_timed (
	key uuid NOT NULL,
	CONSTRAINT onceline_marker_timed_pkey PRIMARY KEY (key)
) PARTITION BY RANGE (key);

-- The offset of the last message applied.
CREATE TABLE IF NOT EXISTS {schema}.onceline_position (
	consumer text NOT NULL,
	topic text NOT NULL,
	epoch text NOT NULL,
	partition text NOT NULL,
	last bigint NOT NULL CHECK (last >= 0),
	CONSTRAINT onceline_position_pkey PRIMARY KEY (consumer, topic, epoch, partition)
) WITH (fillfactor = 50);

-- External calls, one row each: see dedup.Call. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {schema}.onceline_call (
	key uuid NOT NULL,
	consumer text NOT NULL,
	id bytea NOT NULL,
	state smallint NOT NULL, -- 1 started, 2 done, 3 unresolved, 4 free
	version bigint NOT NULL,
	token bytea NOT NULL,
	attempts bigint NOT NULL,
	first bigint NOT NULL,
	changed bigint NOT NULL,
	due bigint NOT NULL,
	request bytea,
	result bytea,
	note text NOT NULL,
	CONSTRAINT onceline_call_pkey PRIMARY KEY (key)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS onceline_call_open ON {schema}.onceline_call (consumer, key) WHERE state IN (1, 3);
CREATE INDEX IF NOT EXISTS onceline_call_ended ON {schema}.onceline_call (consumer, changed) WHERE state IN (2, 4);
