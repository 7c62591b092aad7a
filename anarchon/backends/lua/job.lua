-- What Redis keeps of a job, and the steps that several verbs share. This file goes between time.lua and the verb.
--
-- KEYS  state, ended, expiry, history, records
--   state    hash: latest, fence, history_limit, ends, and "run:<run id>" with each unfinished run as JSON
--   ended    hash: "run:<run id>" of a finished run, with the token that finished it; "token:..." of a released one
--   expiry   sorted set: the names in ended, each numbered, by when it may be forgotten
--   history  sorted set: "<attempt>:<run id>" by fence
--   records  hash: the same names, with the record as JSON
-- They share the job's hash tag, and none has a time to live: nothing that decides may vanish by itself.
local STATE, ENDED, EXPIRY, HISTORY, RECORDS = unpack(KEYS)

-- For how long, and how many whatever their age, ended runs and releasing tokens are remembered.
local REMEMBER_MS, REMEMBER_NEWEST = 600000, 16

-- How many things that are over one call removes at most, so that no call is long; the next goes on from there.
local REMOVED_PER_CALL = 1000

local now_ms = clock_ms()

local function whole(number)
  -- Lua would write a large one as 1.7e+12.
  return string.format('%.0f', number)
end

-- No number that is kept is larger: of one with more digits, cjson would lose the last.
local LARGEST = 99999999999999

local function is_number(value)
  return type(value) == 'number' and value >= 0 and value <= LARGEST and value % 1 == 0
end

-- Text that Python can read: every byte above 127 is part of a sequence.
local function is_text(value)
  if type(value) ~= 'string' then return false end
  return not value:find('[\128-\255]') or not value:gsub('[\194-\244][\128-\191]+', ''):find('[\128-\255]')
end

-- The numbers of the job itself.
local OWN = {'fence', 'history_limit', 'latest', 'ends'}

-- What the fields of a run must be, as in damage.py. Any other field is a newer version's, and is kept as it is.
local NUMBERS = {'slot_ms', 'attempt', 'counted', 'fence', 'started_at_ms', 'lease_until_ms', 'lease_ms',
  'history_limit'}
local NUMBERS_IF_ANY = {'first_fence', 'latest_before_ms'}
local TEXTS = {'token', 'instance_id'}
local TRUTHS_IF_ANY = {'released', 'ended'}
local TRIGGERS = {scheduled = true, ['catch-up'] = true, takeover = true, manual = true}

-- The first field of a run that is not what it must be.
local function damaged_field(run)
  for _, field in ipairs(NUMBERS) do
    if not is_number(run[field]) then return field end
  end
  for _, field in ipairs(NUMBERS_IF_ANY) do
    if run[field] ~= nil and not is_number(run[field]) then return field end
  end
  for _, field in ipairs(TEXTS) do
    if not is_text(run[field]) then return field end
  end
  for _, field in ipairs(TRUTHS_IF_ANY) do
    if run[field] ~= nil and type(run[field]) ~= 'boolean' then return field end
  end
  if not TRIGGERS[run.trigger] then return 'trigger' end
  if run.overlap ~= 'skip' and run.overlap ~= 'allow' then return 'overlap' end
  if run.held_before == nil then return nil end
  if type(run.held_before) ~= 'table' then return 'held_before' end
  for number, token in pairs(run.held_before) do
    if type(number) ~= 'number' or not is_text(token) then return 'held_before' end
  end
end

-- What every verb but forget answers, and does nothing, where something of the job is damaged: the name in the state
-- hash; of a run, the field, or nothing where none can be read; and what is there, the field's as JSON, if anything is.
local function damage(name, field, value)
  return {'damaged', name, field, value and value:sub(1, 500)}
end

-- As JSON, but for numbers, of which cjson would show too few digits; it also reads nan and inf, and writes neither.
local function told(value)
  if value == nil then return nil end
  if type(value) == 'number' then return string.format('%.17g', value) end
  local ok, text = pcall(cjson.encode, value)
  return ok and text or tostring(value)
end

-- A run, or nil and the damage.
local function read_run(name, text)
  local ok, run = pcall(cjson.decode, text)
  if not ok or type(run) ~= 'table' or not is_text(name) then return nil, damage(name, '', text) end
  local field = damaged_field(run)
  if field then return nil, damage(name, field, told(run[field])) end
  run.run_id = name:sub(5)
  return run
end

-- The job, or nil and the damage. Nothing damaged may be guessed or passed over: a slot could run twice, or a second
-- run beside a live one.
local function load_job()
  local job = {runs = {}}
  local kept = {}
  local state = redis.call('HGETALL', STATE)
  for i = 1, #state, 2 do
    local name, value = state[i], state[i + 1]
    if name:sub(1, 4) == 'run:' then
      local run, damaged = read_run(name, value)
      if damaged then return nil, damaged end
      job.runs[run.run_id] = run
    else
      kept[name] = value
    end
  end
  -- The first grant writes fence and history_limit; latest comes with the first on schedule, ends with the first end.
  if #state == 0 then kept.fence, kept.history_limit = '0', '1' end
  kept.ends = kept.ends or '0'
  for _, name in ipairs(OWN) do
    local value = kept[name]
    local number = value and value:find('^%d+$') and tonumber(value)
    if not is_number(number) and (value or name ~= 'latest') then return nil, damage(name, '', value) end
    job[name] = number
  end
  return job
end

local function put_run(run)
  redis.call('HSET', STATE, 'run:' .. run.run_id, cjson.encode(run))
end

local function manual(run)
  return run.trigger == 'manual'
end

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

-- The unfinished run whose newest attempt this token holds, its lease live or over.
local function held(job, run_id, token)
  local run = job.runs[run_id]
  return run and run.token == token and not run.released and run
end

local function token_name(run_id, token)
  -- The length tells where the token ends, whatever is in it.
  return 'token:' .. #token .. ':' .. token .. run_id
end

-- 'finished' or 'released' where this token is remembered to have done so; else nil.
local function ended_by(run_id, token)
  local known = redis.call('HMGET', ENDED, 'run:' .. run_id, token_name(run_id, token))
  return known[1] == 'by:' .. token and 'finished' or known[2] and 'released' or nil
end

-- Remembers an end under its name, and forgets what has been remembered for long enough.
local function remember(job, run, name, value)
  job.ends = job.ends + 1
  redis.call('HSET', STATE, 'ends', whole(job.ends))
  redis.call('HSET', ENDED, name, value)
  local keep_until_ms = now_ms + math.max(REMEMBER_MS, 2 * run.lease_ms)
  redis.call('ZADD', EXPIRY, whole(keep_until_ms), whole(job.ends) .. ':' .. name)
  local over = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', whole(now_ms), 'LIMIT', 0, REMOVED_PER_CALL)
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

-- Writes or replaces a record, then cuts the history to its limit, but never below the number of unfinished runs: a
-- record that still tells whether an attempt is recorded must stay.
local function save(job, run_id, attempt, fence, record, history_limit)
  local name = whole(attempt) .. ':' .. run_id
  redis.call('HSET', RECORDS, name, record)
  redis.call('ZADD', HISTORY, whole(fence), name)
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
  record = record:gsub('"attempt":%-?%d+', '"attempt":' .. whole(run.attempt), 1)
  record = record:gsub('"fence":%-?%d+', '"fence":' .. whole(run.fence), 1)
  save(job, run.run_id, run.attempt, run.fence, record, run.history_limit)
end
