-- claim: asks for an attempt of a run. The numbers are the lines of the claim table in docs/protocol.rst.
--
-- ARGV    job, run_id, slot_ms, token, instance_id, lease_ms, overlap, max_attempts, window_ms, mode, trigger,
--         history_limit
-- ANSWER  outcome, now_ms, latest_ms, attempt, fence, done, wait_ms, holder
--   in one line with spaces between, for that is read fastest; what is not known or has no use here is a hyphen
--   outcome: won, running, overlap, late, done or none
--   done: finished, superseded, exhausted or passed
--   holder, as JSON: run id, slot_ms, attempt, instance id, what is left of its lease in milliseconds
local job_name, run_id, slot_ms, token, instance_id, lease_ms, overlap, max_attempts, window_ms, mode, trigger,
  history_limit = unpack(ARGV)
slot_ms, lease_ms, history_limit = tonumber(slot_ms), tonumber(lease_ms), tonumber(history_limit)
max_attempts, window_ms = tonumber(max_attempts), tonumber(window_ms)

local job, damaged = load_job()
if damaged then return damaged end
cut_leases(job)
local by_hand = trigger == 'manual'

local function answer(outcome, more)
  more = more or {}
  local run = more.holder
  local holder = run and {run.run_id, run.slot_ms, run.attempt, run.instance_id, run.lease_until_ms - now_ms}
  return string.format('%s %.0f %s - - %s %s %s', outcome, now_ms, job.latest or '-', more.done or '-',
    more.wait_ms or '-', holder and cjson.encode(holder) or '-')
end

local function won(run)
  return string.format('won %.0f %s %.0f %.0f - - -', now_ms, run.latest_before_ms or '-', run.attempt, run.fence)
end

local function won_again(run)
  renew(job, run, lease_ms)
  return won(run)
end

local function record_lost(run)
  if run.released or redis.call('HEXISTS', RECORDS, run.attempt .. ':' .. run.run_id) == 1 then return end
  local started_at_ms = math.min(run.started_at_ms, now_ms)
  local record = '{"attempt":' .. run.attempt .. ',"duration_ms":' .. (now_ms - started_at_ms)
    .. ',"error":null,"fence":' .. run.fence .. ',"finished_at_ms":' .. now_ms
    .. ',"instance_id":' .. cjson.encode(run.instance_id) .. ',"job":' .. cjson.encode(job_name)
    .. ',"lease_lost":false,"run_id":' .. cjson.encode(run.run_id)
    .. ',"slot_ms":' .. run.slot_ms .. ',"started_at_ms":' .. started_at_ms
    .. ',"status":"lost","trigger":' .. cjson.encode(run.trigger) .. '}'
  save(job, run.run_id, run.attempt, run.fence, record, run.history_limit)
end

local function give_up(run)
  record_lost(run)
  close(job, run)
end

local function has_held(run)
  for _, earlier in ipairs(run.held_before or {}) do
    if earlier == token then return true end
  end
  return run.token == token or ended_by(run_id, token) ~= nil
end

-- What is granted, unless a line answers first.
local attempt, counted, first_fence, held_before, latest_ms = 1, 1
local run = job.runs[run_id]

if run then
  if live(run) then
    if run.token == token then return won_again(run) end                                                         -- 2
    return answer('running', {holder = run})                                                                     -- 3
  end
  if not manual(run) and job.latest and run.slot_ms < job.latest then                                            -- 4
    give_up(run)
    return answer('done', {done = 'superseded'})
  end
  local other = in_the_way(job, run, overlap)
  if run.token == token and not run.released then                                                                -- 5
    return other and answer('overlap', {holder = other}) or won_again(run)
  end
  if has_held(run) then return answer('none') end                                                                -- 5
  if run.counted >= (manual(run) and 1 or max_attempts) then                                                     -- 6
    give_up(run)
    return answer('done', {done = 'exhausted'})
  end
  if other then return answer('overlap', {holder = other}) end                                                   -- 7
  record_lost(run)                                                                                               -- 8
  attempt, counted = run.attempt + 1, run.counted + 1
  first_fence, held_before = run.first_fence or run.fence, run.held_before
  if not run.released then
    held_before = held_before or {}
    table.insert(held_before, run.token)
  end
else
  if redis.call('HEXISTS', ENDED, 'run:' .. run_id) == 1 then return answer('done', {done = 'finished'}) end      -- 1
  if not by_hand then
    if slot_ms > now_ms then                                                                                     -- 9
      return answer('none', {wait_ms = string.format('%.0f', slot_ms - now_ms)})  -- It may have any length.
    end
    if job.latest and slot_ms <= job.latest and job.latest <= now_ms then                                        -- 10
      return answer('done', {done = 'passed'})
    end
  end
  if now_ms - slot_ms > window_ms then return answer('late') end                                                 -- 11
  if not by_hand and mode == 'takeover' then return answer('none') end                                           -- 12
  local other = in_the_way(job, nil, overlap)
  if other then return answer('overlap', {holder = other}) end                                                   -- 13
  local replaced = {}                                                                                            -- 14
  for _, run in pairs(job.runs) do
    if (manual(run) or (not by_hand and run.slot_ms < slot_ms)) and not live(run) then table.insert(replaced, run) end
  end
  -- In the order of their first grants.
  table.sort(replaced, function(a, b) return (a.first_fence or a.fence) < (b.first_fence or b.fence) end)
  for _, run in ipairs(replaced) do give_up(run) end
  latest_ms = not by_hand and math.max(job.latest or slot_ms, slot_ms)
end

-- The grant. Of a run, only what is true is written: no false, no empty list.
end_leases_over(job)
local fence = math.max(job.fence + 1, now_ms)
local granted = {
  run_id = run_id, slot_ms = slot_ms, trigger = trigger, attempt = attempt, counted = counted, token = token,
  fence = fence, first_fence = first_fence, instance_id = instance_id, started_at_ms = now_ms,
  lease_until_ms = now_ms + lease_ms, lease_ms = lease_ms, overlap = overlap, history_limit = history_limit,
  latest_before_ms = job.latest, held_before = held_before,
}
local changed = {'fence', fence, 'history_limit', history_limit, 'run:' .. run_id, cjson.encode(granted)}
if latest_ms then
  changed[7], changed[8] = 'latest', latest_ms
end
redis.call('HSET', STATE, unpack(changed))
return won(granted)
