-- What the store keeps for a job (docs/protocol.rst), once per job, run, end and attempt.

CREATE TABLE jobs (
    job TEXT PRIMARY KEY,
    latest_ms INTEGER,
    fence INTEGER NOT NULL,
    history_limit INTEGER NOT NULL
);

-- The unfinished runs. The columns are the fields of Run, in their order; held_before is a JSON array.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    run_id TEXT NOT NULL,
    slot_ms INTEGER NOT NULL,
    "trigger" TEXT NOT NULL,
    manual INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    counted INTEGER NOT NULL,
    token TEXT NOT NULL,
    fence INTEGER NOT NULL,
    instance_id TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    overlap TEXT NOT NULL,
    history_limit INTEGER NOT NULL,
    latest_before_ms INTEGER,
    released INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    held_before TEXT NOT NULL,
    UNIQUE (job, run_id)
);

-- The finished runs, and the tokens that released one, for a short while. A higher id came later.
CREATE TABLE ended (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    run_id TEXT NOT NULL,
    token TEXT,
    finished INTEGER NOT NULL,
    keep_until_ms INTEGER NOT NULL
);
CREATE INDEX ended_in_order ON ended (job);
CREATE INDEX ended_by_run ON ended (job, run_id);
CREATE INDEX ended_by_age ON ended (job, keep_until_ms);

-- One record an attempt, as the JSON text of encode_record.
CREATE TABLE history (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    run_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (job, run_id, attempt)
);
CREATE INDEX history_by_fence ON history (job, fence DESC);
