
-- For each topic that is relayed in transactions of its broker: the term of the
-- process that does, and what it has prepared there.
CREATE TABLE IF NOT EXISTS {schema}.onceline_outbox_relay (
	topic text NOT NULL,
	term bigint NOT NULL,
	token bytea, -- NULL: nothing is prepared
	seqs bigint[] NOT NULL DEFAULT '{}', -- of its rows
	CONSTRAINT onceline_outbox_relay_pkey PRIMARY KEY (topic)
) WITH (fillfactor = 50);
