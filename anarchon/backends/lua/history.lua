-- History: the record of each attempt.

-- Writes or replaces a record, then cuts the history to its limit, but never below the number of unfinished runs: a
-- record that still tells whether an attempt is recorded must stay.
local function save(job, run_id, attempt, fence, record, history_limit)
  local name = attempt .. ':' .. run_id
  redis.call('HSET', RECORDS, name, record)
  redis.call('ZADD', HISTORY, fence, name)
  local keep = 0
  for _ in pairs(job.runs) do keep = keep + 1 end
  local surplus = redis.call('ZCARD', HISTORY) - math.max(keep, history_limit)
  if surplus > 0 then
    local oldest = redis.call('ZRANGE', HISTORY, 0, math.min(surplus, REMOVED_PER_CALL) - 1)
    redis.call('ZREM', HISTORY, unpack(oldest))
    redis.call('HDEL', RECORDS, unpack(oldest))
  end
end

-- Saves the record of the attempt that a run's holder has ended. Attempt and fence are the store's: they are written
-- over those in the JSON, where no text can be mistaken for them, since a quote inside a text has a backslash before it.
local function save_ended(job, run, record)
  record = record:gsub('"attempt":%-?%d+', '"attempt":' .. run.attempt, 1)
  record = record:gsub('"fence":%-?%d+', '"fence":' .. run.fence, 1)
  save(job, run.run_id, run.attempt, run.fence, record, run.history_limit)
end
