-- What Redis keeps of a job, and how it is read. This file goes between time.lua and the steps that a verb takes.
--
-- KEYS  state, ended, expiry, history, records
--   state    hash: latest, fence, history_limit, ends, and "run:<run id>" with each unfinished run as JSON
--   ended    hash: "run:<run id>" of a finished run, with the token that finished it; "token:..." of a released one
--   expiry   sorted set: the names in ended, each numbered, by when it may be forgotten
--   history  sorted set: "<attempt>:<run id>" by fence
--   records  hash: the same names, with the record as JSON
-- They share the job's hash tag, and none has a time to live: nothing that decides may vanish by itself.
local STATE, ENDED, EXPIRY, HISTORY, RECORDS = unpack(KEYS)

-- How many things that are over one call removes at most, so that no call is long; the next goes on from there.
local REMOVED_PER_CALL = 1000

local now_ms = clock_ms()

-- No number that is kept is larger: of one with more digits, cjson would lose the last, and so would Lua's own "..".
local LARGEST = 99999999999999

local function is_number(value)
  return type(value) == 'number' and value >= 0 and value <= LARGEST and value % 1 == 0
end

-- Text that Python can read: every byte above 127 is part of a sequence.
local function is_text(value)
  if type(value) ~= 'string' then return false end
  return not value:find('[\128-\255]') or not value:gsub('[\194-\244][\128-\191]+', ''):find('[\128-\255]')
end

local function are_texts(value)
  if type(value) ~= 'table' then return false end
  for number, text in pairs(value) do
    if type(number) ~= 'number' or not is_text(text) then return false end
  end
  return true
end

-- The first field of a run that is not what it must be, as in damage.py, if any. Further fields are a newer version's,
-- and are kept as they are. No table of rules: each call would build it anew.
local function damaged_field(run)
  return not is_number(run.slot_ms) and 'slot_ms'
    or not is_number(run.attempt) and 'attempt'
    or not is_number(run.counted) and 'counted'
    or not is_number(run.fence) and 'fence'
    or not is_number(run.started_at_ms) and 'started_at_ms'
    or not is_number(run.lease_until_ms) and 'lease_until_ms'
    or not is_number(run.lease_ms) and 'lease_ms'
    or not is_number(run.history_limit) and 'history_limit'
    or run.first_fence ~= nil and not is_number(run.first_fence) and 'first_fence'
    or run.latest_before_ms ~= nil and not is_number(run.latest_before_ms) and 'latest_before_ms'
    or not is_text(run.token) and 'token'
    or not is_text(run.instance_id) and 'instance_id'
    or run.released ~= nil and type(run.released) ~= 'boolean' and 'released'
    or run.ended ~= nil and type(run.ended) ~= 'boolean' and 'ended'
    or run.trigger ~= 'scheduled' and run.trigger ~= 'catch-up' and run.trigger ~= 'takeover'
      and run.trigger ~= 'manual' and 'trigger'
    or run.overlap ~= 'skip' and run.overlap ~= 'allow' and 'overlap'
    or run.held_before ~= nil and not are_texts(run.held_before) and 'held_before'
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
  -- The first grant writes fence and history_limit; latest comes with the first on schedule, ends with the first end.
  local job = {runs = {}, fence = nil, history_limit = nil, latest = nil, ends = 0}
  local state = redis.call('HGETALL', STATE)
  for i = 1, #state, 2 do
    local name, value = state[i], state[i + 1]
    if name:sub(1, 4) == 'run:' then
      local run, damaged = read_run(name, value)
      if damaged then return nil, damaged end
      job.runs[run.run_id] = run
    elseif name == 'fence' or name == 'history_limit' or name == 'latest' or name == 'ends' then
      local number = value:find('^%d+$') and tonumber(value)
      if not (number and number <= LARGEST) then return nil, damage(name, '', value) end
      job[name] = number
    end
  end
  if #state == 0 then
    job.fence, job.history_limit = 0, 1
  elseif not job.fence or not job.history_limit then
    return nil, damage(job.fence and 'history_limit' or 'fence', '')
  end
  return job
end

local function put_run(run)
  redis.call('HSET', STATE, 'run:' .. run.run_id, cjson.encode(run))
end

local function manual(run)
  return run.trigger == 'manual'
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

