-- Ends: the finished runs and the tokens that released one are remembered for a while.

-- Remembers an end under its name, and forgets what has been remembered for long enough.
local function remember(job, run, name, value)
  -- For how long, and how many whatever their age.
  local REMEMBER_MS, REMEMBER_NEWEST = 600000, 16
  job.ends = job.ends + 1
  redis.call('HSET', STATE, 'ends', job.ends)
  redis.call('HSET', ENDED, name, value)
  local keep_until_ms = now_ms + math.max(REMEMBER_MS, 2 * run.lease_ms)
  redis.call('ZADD', EXPIRY, keep_until_ms, job.ends .. ':' .. name)
  local over = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', now_ms, 'LIMIT', 0, REMOVED_PER_CALL)
  for _, entry in ipairs(over) do
    local number, old = entry:match('^(%d+):(.*)$')
    -- What is no entry of ours is left where it is.
    if number and tonumber(number) <= job.ends - REMEMBER_NEWEST then
      redis.call('ZREM', EXPIRY, entry)
      redis.call('HDEL', ENDED, old)
    end
  end
end

-- The run is finished: by this token, or, without one, given up.
local function close(job, run, token)
  job.runs[run.run_id] = nil
  redis.call('HDEL', STATE, 'run:' .. run.run_id)
  remember(job, run, 'run:' .. run.run_id, token and 'by:' .. token or 'given up')
end

