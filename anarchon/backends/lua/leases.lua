-- Leases: when one is live, renewed, cut, over for good, or in another's way.

local function live(run)
  return not run.released and not run.ended and run.lease_until_ms > now_ms
end

-- For good: a clock that steps back must not revive a lease that a grant has found over.
local function end_leases_over(job)
  for _, run in pairs(job.runs) do
    if not run.ended and not live(run) then
      run.ended = true
      put_run(run)
    end
  end
end

local function renew(job, run, lease_ms)
  -- A lease that was over and is renewed comes in the way anew, like a grant.
  if not live(run) then end_leases_over(job) end
  run.lease_ms, run.lease_until_ms, run.ended = lease_ms, now_ms + lease_ms, nil
  put_run(run)
end

-- A clock that stepped back would otherwise leave leases that last for as long as the step.
local function cut_leases(job)
  for _, run in pairs(job.runs) do
    if run.lease_until_ms > now_ms + run.lease_ms then
      run.lease_until_ms = now_ms + run.lease_ms
      put_run(run)
    end
  end
end

-- Another run with a live lease, where the asker or that run says skip; of several, the one with the highest fence.
local function in_the_way(job, asker, overlap)
  local found
  for _, run in pairs(job.runs) do
    if run ~= asker and live(run) and (overlap == 'skip' or run.overlap == 'skip')
      and (not found or run.fence > found.fence) then
      found = run
    end
  end
  return found
end

