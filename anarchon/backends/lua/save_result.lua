-- save_result: writes or replaces the record of (run id, attempt) and touches nothing else.
--
-- ARGV    run_id, attempt, fence, record
-- ANSWER  ok
local run_id, attempt, fence, record = unpack(ARGV)

local job, damaged = load_job()
if damaged then return damaged end
save(job, run_id, attempt, fence, record, job.history_limit)
return 'ok'
