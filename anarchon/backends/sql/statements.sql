-- Every statement of the store, each under its name. Arguments are written :so.

-- name: load_job
SELECT latest_ms, fence, history_limit FROM jobs WHERE job = :job;

-- name: save_job
INSERT INTO jobs (job, latest_ms, fence, history_limit) VALUES (:job, :latest_ms, :fence, :history_limit)
ON CONFLICT (job) DO UPDATE
SET latest_ms = excluded.latest_ms, fence = excluded.fence, history_limit = excluded.history_limit;

-- name: load_runs
-- In the order of their first grants: a takeover keeps the row and its id.
SELECT run_id, slot_ms, "trigger", manual, attempt, counted, token, fence, instance_id, started_at_ms, lease_until_ms,
    lease_ms, overlap, history_limit, latest_before_ms, released, ended, held_before
FROM runs WHERE job = :job ORDER BY id;

-- name: save_run
INSERT INTO runs (
    job, run_id, slot_ms, "trigger", manual, attempt, counted, token, fence, instance_id, started_at_ms, lease_until_ms,
    lease_ms, overlap, history_limit, latest_before_ms, released, ended, held_before
) VALUES (
    :job, :run_id, :slot_ms, :trigger, :manual, :attempt, :counted, :token, :fence, :instance_id, :started_at_ms,
    :lease_until_ms, :lease_ms, :overlap, :history_limit, :latest_before_ms, :released, :ended, :held_before
)
ON CONFLICT (job, run_id) DO UPDATE
SET slot_ms = excluded.slot_ms, "trigger" = excluded."trigger", manual = excluded.manual, attempt = excluded.attempt,
    counted = excluded.counted, token = excluded.token, fence = excluded.fence, instance_id = excluded.instance_id,
    started_at_ms = excluded.started_at_ms, lease_until_ms = excluded.lease_until_ms, lease_ms = excluded.lease_ms,
    overlap = excluded.overlap, history_limit = excluded.history_limit, latest_before_ms = excluded.latest_before_ms,
    released = excluded.released, ended = excluded.ended, held_before = excluded.held_before;

-- name: close_run
DELETE FROM runs WHERE job = :job AND run_id = :run_id;

-- name: finished
SELECT finished FROM ended WHERE job = :job AND run_id = :run_id AND finished <> 0 LIMIT 1;

-- name: ended_by
-- A token may have done both, where its release was remembered for longer than the end of the run that followed.
SELECT finished FROM ended WHERE job = :job AND run_id = :run_id AND token = :token ORDER BY finished DESC LIMIT 1;

-- name: remember
INSERT INTO ended (job, run_id, token, finished, keep_until_ms)
VALUES (:job, :run_id, :token, :finished, :keep_until_ms);

-- name: forget_ended
-- Each row is forgotten once, so this costs as much as was remembered, however old the job.
DELETE FROM ended
WHERE job = :job AND keep_until_ms <= :now_ms
    AND id NOT IN (SELECT id FROM ended INDEXED BY ended_in_order WHERE job = :job ORDER BY id DESC LIMIT :newest);

-- name: has_record
SELECT 1 FROM history WHERE job = :job AND run_id = :run_id AND attempt = :attempt;

-- name: save_record
INSERT INTO history (job, run_id, attempt, fence, record) VALUES (:job, :run_id, :attempt, :fence, :record)
ON CONFLICT (job, run_id, attempt) DO UPDATE SET fence = excluded.fence, record = excluded.record;

-- name: cut_history
DELETE FROM history
WHERE id IN (SELECT id FROM history WHERE job = :job ORDER BY fence DESC, id LIMIT -1 OFFSET :keep);

-- name: history
-- As bytes: text that is no UTF-8 would fail the whole call, and a damaged record is only to be passed over.
SELECT CAST(record AS BLOB) FROM history WHERE job = :job ORDER BY fence DESC, id LIMIT :limit OFFSET :offset;

-- name: remove_job
DELETE FROM jobs WHERE job = :job;

-- name: remove_runs
DELETE FROM runs WHERE job = :job;

-- name: remove_ended
DELETE FROM ended WHERE job = :job;

-- name: remove_history
DELETE FROM history WHERE job = :job;
