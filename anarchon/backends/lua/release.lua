-- release: ends the lease of an interrupted run and saves its record. The run stays unfinished, unless it is manual:
-- nobody takes over a run that a person asked for and whose caller is gone.
--
-- ARGV    run_id, token, record, counts
-- ANSWER  ok or lost
local run_id, token, record, counts = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

local job, damaged = load_job()
if damaged then return damaged end
local run = held(job, run_id, token)
if not run then return ended_by(run_id, token) and 'ok' or 'lost' end
if manual(run) then
  close(job, run, token)
else
  run.released = true
  if not counts then run.counted = run.counted - 1 end
  put_run(run)
  remember(job, run, token_name(run_id, token), '')
end
save_ended(job, run, record)
return 'ok'
