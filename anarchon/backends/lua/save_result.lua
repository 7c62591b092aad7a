-- save_result: writes or replaces the record of (run id, attempt) and touches nothing else.
--
-- ARGV    run_id, attempt, fence, record
-- ANSWER  ok
local run_id, attempt, fence, record = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local job, damaged = load_job()
if damaged then return damaged end
save(job, run_id, attempt, fence, record, job.history_limit)
return 'ok'
