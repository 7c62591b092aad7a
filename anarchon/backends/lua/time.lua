-- The store's clock in milliseconds. This file goes before every script; a test may put another clock in its place.
local function clock_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
