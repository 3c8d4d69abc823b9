-- take: choose what goes out next, so that every host gets its share and no more.
-- ARGV: prefix, retention, kind, most in all, most to hosts that are not known to work, most a host, ms between two to one host (a fraction),
--   lease ms, the broker's list of its tickets, most bytes of waiting images or ''
-- Returns {now, the next time to look or '', 1 when there was more than may go, then id, lease of each}
-- A host that is new or failed last gets one at a time, and all such hosts together a part of the whole, so the dead
-- ones never take up every worker. What a worker had when its lease ran out goes again.

local kind, room, probes_room = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local per_host, interval_ms, lease_ms = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local max_bytes = tonumber(ARGV[10])

-- Most hosts that are looked at in one run, so that it stays short.
local LOOKS = 256
-- Most leases of a host that are found lapsed in one run.
local LAPSES = 100
-- How far ahead of its rate a host may get.
local BURST_MS = 100
-- When such a host that found no room is looked at again.
local PROBE_PAUSE_MS = 1000

local reply = { digits(now), '', 0 }

room = room - redis.call('LLEN', ARGV[9])
if max_bytes and tonumber(redis.call('HGET', open_key, 'bytes') or '0') >= max_bytes then room = 0 end
redis.call('ZREMRANGEBYSCORE', lines.probes_key(kind), '-inf', digits(now))
probes_room = probes_room - redis.call('ZCARD', lines.probes_key(kind))

local function bring_back_lapsed(host)
  local busy = lines.busy_key(kind, host)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', busy, '-inf', digits(now), 'LIMIT', 0, LAPSES)) do
    redis.call('ZREM', busy, id)
    redis.call('ZADD', lines.wait_key(kind, host), digits(now), id)
  end
end

local function lease_out(host, id, probing)
  local till = digits(now + lease_ms)
  redis.call('ZREM', lines.wait_key(kind, host), id)
  redis.call('ZADD', lines.busy_key(kind, host), till, id)
  if probing then redis.call('ZADD', lines.probes_key(kind), till, id) end
  reply[#reply + 1] = id
  reply[#reply + 1] = till
end

local function first_score(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '')
end

-- Serve one host; gives the time at which it is to be looked at again, or nil when nothing is left of it.
local function serve(host)
  bring_back_lapsed(host)
  local f = redis.call('HMGET', lines.pace_key(kind, host), 'works', 'next_ms', 'hold_ms')
  local probing = not f[1]
  local used_up_to = math.max(tonumber(f[2] or '0'), now)
  local free = (probing and 1 or per_host) - redis.call('ZCARD', lines.busy_key(kind, host))
  local by_rate = math.floor((now + BURST_MS - used_up_to) / interval_ms) + 1
  local rests_till = math.max(tonumber(f[3] or '0'), used_up_to - BURST_MS)
  local count = math.min(room, free, probing and probes_room or room, rests_till > now and 0 or by_rate)
  local ids = count > 0
    and redis.call('ZRANGEBYSCORE', lines.wait_key(kind, host), '-inf', digits(now), 'LIMIT', 0, count) or {}
  for _, id in ipairs(ids) do lease_out(host, id, probing) end
  if #ids > 0 then
    room = room - #ids
    if probing then probes_room = probes_room - #ids end
    redis.call('HSET', lines.pace_key(kind, host), 'next_ms', string.format('%.3f', used_up_to + #ids * interval_ms))
    redis.call('EXPIRE', lines.pace_key(kind, host), lines.PACE_SECONDS)
    rests_till = math.max(rests_till, used_up_to + #ids * interval_ms - BURST_MS)
  end
  local waiting, lease = first_score(lines.wait_key(kind, host)), first_score(lines.busy_key(kind, host))
  if waiting and free > #ids then
    if probing and probes_room <= 0 then rests_till = math.max(rests_till, now + PROBE_PAUSE_MS) end
    return math.min(math.max(waiting, rests_till, now + 1), lease or math.huge)
  end
  return lease
end

for _ = 1, LOOKS do
  local host = redis.call('ZRANGEBYSCORE', prefix .. kind, '-inf', digits(now), 'LIMIT', 0, 1)[1]
  if not host then break end
  if room <= 0 then
    reply[3] = 1
    break
  end
  local at = serve(host)
  redis.call('ZREM', prefix .. kind, host)
  if at then redis.call('ZADD', prefix .. kind, digits(math.ceil(at)), host) end
end
local first = redis.call('ZRANGE', prefix .. kind, 0, 0, 'WITHSCORES')[2]
if first then reply[2] = first end
return reply
