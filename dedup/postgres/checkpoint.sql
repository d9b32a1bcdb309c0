
-- Pipelines, and the term of the process that owns each.
CREATE TABLE IF NOT EXISTS {schema}.onceline_pipeline (
	name text NOT NULL,
	term bigint NOT NULL,
	note bytea,
	CONSTRAINT onceline_pipeline_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

-- Their last checkpoints: positions, state and what the sink has prepared, in the
-- form of package pipeline. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {schema}.onceline_checkpoint (
	pipeline text NOT NULL,
	number bigint NOT NULL,
	term bigint NOT NULL,
	state smallint NOT NULL, -- 1 prepared, 2 committed, 3 lost, 4 undone
	note text NOT NULL,
	taken bigint NOT NULL,
	data bytea NOT NULL,
	CONSTRAINT onceline_checkpoint_pkey PRIMARY KEY (pipeline, number)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);
