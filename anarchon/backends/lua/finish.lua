-- finish: marks the run finished, then saves its record. A lease that is over but free is no obstacle.
--
-- ARGV    run_id, token, record
-- ANSWER  ok or lost
local run_id, token, record = ARGV[1], ARGV[2], ARGV[3]

local job, damaged = load_job()
if damaged then return damaged end
local run = held(job, run_id, token)
if not run then
  if ended_by(run_id, token) ~= 'finished' then return 'lost' end
  -- Written again as it stands, so that whoever sends WAIT behind a repeat waits for this, and not for nothing.
  redis.call('HSET', ENDED, 'run:' .. run_id, 'by:' .. token)
  return 'ok'
end
close(job, run, token)
save_ended(job, run, record)
return 'ok'
