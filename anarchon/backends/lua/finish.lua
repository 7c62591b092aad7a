-- finish: marks the run finished, then saves its record. A lease that is over but free is no obstacle.
--
-- ARGV    run_id, token, record
-- ANSWER  ok or lost
local run_id, token, record = ARGV[1], ARGV[2], ARGV[3]

local job, damaged = load_job()
if damaged then return damaged end
local run = held(job, run_id, token)
if not run then return ended_by(run_id, token) == 'finished' and 'ok' or 'lost' end
close(job, run, token)
save_ended(job, run, record)
return 'ok'
