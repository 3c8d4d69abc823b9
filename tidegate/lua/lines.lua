-- Lines: what waits to go out, a line for each host, so that a host that is slow or dead holds up nobody but itself.
-- Of each kind of work (`outbox`: webhooks; `fetches`: jobs whose image is still to be fetched) there are
--   {kind}              zset of hosts by the time at which their line is to be looked at next
--   {kind}:wait:{host}  zset of ids by the time from which they may go
--   {kind}:busy:{host}  zset of ids that a worker has, by the end of its lease
--   {kind}:pace:{host}  hash: `works` as long as it does, `next_ms` up to which the rate is used, `hold_ms` until when it rests
--   {kind}:probes       zset of the ids with which hosts are tried that are not known to work, by the end of their leases

-- A host that nothing was sent to for so long is no longer known to work.
lines.PACE_SECONDS = 3600

local woken = {}

function lines.wait_key(kind, host) return prefix .. kind .. ':wait:' .. host end
function lines.busy_key(kind, host) return prefix .. kind .. ':busy:' .. host end
function lines.pace_key(kind, host) return prefix .. kind .. ':pace:' .. host end
function lines.probes_key(kind) return prefix .. kind .. ':probes' end

function lines.look_at(kind, host, at)
  redis.call('ZADD', prefix .. kind, 'LT', digits(at), host)
end

function lines.add(kind, host, id, due)
  redis.call('ZADD', lines.wait_key(kind, host), digits(due), id)
  lines.look_at(kind, host, due)
  if due <= now then woken[kind] = true end
end

-- Where it was a worker's, its host has room for another.
function lines.remove(kind, host, id)
  local wait, busy = lines.wait_key(kind, host), lines.busy_key(kind, host)
  redis.call('ZREM', wait, id)
  local was_busy = redis.call('ZREM', busy, id) == 1
  redis.call('ZREM', lines.probes_key(kind), id)
  if redis.call('EXISTS', wait, busy) == 0 then
    redis.call('ZREM', prefix .. kind, host)
  elseif was_busy and redis.call('EXISTS', wait) == 1 then
    lines.look_at(kind, host, now)
    woken[kind] = true
  end
end

-- Whether the worker that got this lease has it still.
function lines.held(kind, host, id, lease)
  return tonumber(redis.call('ZSCORE', lines.busy_key(kind, host), id) or '') == tonumber(lease)
end

-- A new lease in the place of the old one; gives its end, by which it is told from every other.
function lines.renew(kind, host, id, lease_ms)
  local till = now + lease_ms
  redis.call('ZREM', lines.busy_key(kind, host), id)
  redis.call('ZADD', lines.busy_key(kind, host), digits(till), id)
  redis.call('ZADD', lines.probes_key(kind), 'XX', digits(till), id)
  return digits(till)
end

-- A worker is done with it, and knows whether the host works.
function lines.free(kind, host, id, works, hold_ms)
  lines.remove(kind, host, id)
  local pace = lines.pace_key(kind, host)
  if works then redis.call('HSET', pace, 'works', '1') else redis.call('HDEL', pace, 'works') end
  if hold_ms > 0 then redis.call('HSET', pace, 'hold_ms', digits(now + hold_ms)) end
  redis.call('EXPIRE', pace, lines.PACE_SECONDS)
end

-- One message a kind wakes the workers that send.
function lines.wake()
  for kind in pairs(woken) do redis.call('PUBLISH', prefix .. 'lines', kind) end
end
