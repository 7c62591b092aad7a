-- heartbeat: renews the lease that the token holds. Never creates anything.
--
-- ARGV    run_id, token, lease_ms
-- ANSWER  ok, finished (by this token: no alarm) or lost
local run_id, token, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local job, damaged = load_job()
if damaged then return damaged end
cut_leases(job)
local run = held(job, run_id, token)
if not run then return ended_by(run_id, token) and 'finished' or 'lost' end
if not live(run) then
  local replaced = not manual(run) and job.latest and job.latest > run.slot_ms
  if replaced or in_the_way(job, run, run.overlap) then return 'lost' end
end
renew(job, run, lease_ms)
return 'ok'
