-- Markers of messages that carry no time of their business event.
CREATE TABLE IF NOT EXISTS onceline_marker (
	marker BINARY(16) NOT NULL,
	seen INT UNSIGNED NOT NULL, -- seconds since 1970
	PRIMARY KEY (marker),
	KEY onceline_marker_seen (seen)
) ENGINE = InnoDB;

-- Markers that begin with the time of the business event, and are deleted by it.
CREATE TABLE IF NOT EXISTS onceline_marker_timed (
	marker BINARY(16) NOT NULL,
	PRIMARY KEY (marker)
) ENGINE = InnoDB;

-- What is below this marker may have been deleted.
CREATE TABLE IF NOT EXISTS onceline_floor (
	one TINYINT NOT NULL,
	marker BINARY(16) NOT NULL,
	PRIMARY KEY (one)
) ENGINE = InnoDB;

INSERT IGNORE INTO onceline_floor (one, marker) VALUES (1, x'00000000000000000000000000000000');

-- A row to lock for each marker, by two bytes of its hash.
CREATE TABLE IF NOT EXISTS onceline_slot (
	slot SMALLINT UNSIGNED NOT NULL,
	PRIMARY KEY (slot)
) ENGINE = InnoDB;

INSERT IGNORE INTO onceline_slot
	WITH RECURSIVE d (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM d WHERE i < 15)
	SELECT a.i + 16 * b.i + 256 * c.i + 4096 * e.i FROM d a, d b, d c, d e
	WHERE (SELECT count(*) FROM onceline_slot) < 65536;

-- What is written so that a commit waits for those before it: a row for each connection.
CREATE TABLE IF NOT EXISTS onceline_sync (
	connection SMALLINT UNSIGNED NOT NULL,
	n BIGINT UNSIGNED NOT NULL,
	PRIMARY KEY (connection)
) ENGINE = InnoDB;

-- The offset of the last message applied.
CREATE TABLE IF NOT EXISTS onceline_position (
	consumer VARBINARY(255) NOT NULL,
	topic VARBINARY(255) NOT NULL,
	epoch VARBINARY(255) NOT NULL,
	part VARBINARY(255) NOT NULL,
	last BIGINT NOT NULL,
	PRIMARY KEY (consumer, topic, epoch, part)
) ENGINE = InnoDB;

-- External calls, one row each: see dedup.Call. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS onceline_call (
	marker BINARY(16) NOT NULL,
	consumer VARBINARY(255) NOT NULL,
	id BLOB NOT NULL,
	state TINYINT NOT NULL, -- 1 started, 2 done, 3 unresolved, 4 free
	version BIGINT NOT NULL,
	token BINARY(8) NOT NULL,
	attempts BIGINT NOT NULL,
	began BIGINT NOT NULL,
	changed BIGINT NOT NULL,
	due BIGINT NOT NULL,
	request VARBINARY(255),
	result LONGBLOB,
	note MEDIUMBLOB NOT NULL,
	PRIMARY KEY (marker),
	KEY onceline_call_open (consumer, state, marker),
	KEY onceline_call_ended (consumer, state, changed)
) ENGINE = InnoDB;
