-- sweep: find what fell between the chairs. One worker at a time, by a lock that ends by itself.
-- ARGV: prefix, retention, lock ms, grace ms, lease ms, max attempts, error for jobs lost at their last attempt,
--   most jobs, then per model: name, how many lists follow, and the broker's list keys for its priorities high,
--   normal, low, lane by lane
-- Returns {} when another worker holds the lock, else {counts, tickets}:
--   counts = {expired, lost, due, reticketed, more (1 when a limit cut the work short)}
--   tickets = list of {id, model, priority, issued_ms, deadline_ms or '', lane} that want a ticket now
-- Work is in proportion to what is due, at any depth.

local lock_ms, grace_ms, lease_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local max_attempts, lost_error, limit = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
-- How many jobs this sweep may still look at: nobody else is served while a script runs.
local left = limit

if lock_ms > 0 then
  local lock = prefix .. 'sweep'
  if redis.call('EXISTS', lock) == 1 then return {} end
  redis.call('DEL', lock)
  redis.call('SET', lock, '1', 'PX', lock_ms)
end

-- When nobody has swept for half a lease, Redis was away, or every worker was: then leases may have lapsed only because
-- nobody could renew them, and whoever lives gets as long again to do it.
local swept_key = prefix .. 'swept'
local gap = redis.call('EXISTS', swept_key) == 0
redis.call('DEL', swept_key)
redis.call('SET', swept_key, '1', 'PX', digits(lease_ms / 2))

local counts = { 0, 0, 0, 0, 0 }
local tickets = {}

-- The jobs that are due by an index, as many as are left for this sweep. An id whose record is gone (evicted, deleted
-- by hand) leaves it.
local function due(key, before)
  local ids = redis.call('ZRANGEBYSCORE', key, '-inf', digits(before), 'LIMIT', 0, left)
  left = left - #ids
  if left == 0 then counts[5] = 1 end
  local jobs = {}
  for _, id in ipairs(ids) do
    local job = look(id)
    if job then jobs[#jobs + 1] = job else redis.call('ZREM', key, id) end
  end
  return jobs
end

-- When the oldest ticket still in a list was issued, as the ticket itself tells; now when there is none, and 0 when
-- it cannot be read. A list is first in, first out: a job whose newest ticket is older than that has lost it, or
-- a worker holds it.
local function oldest_ticket(list)
  local last = redis.call('LINDEX', list, -1)
  if not last then return now end
  local ok, message = pcall(cjson.decode, last)
  local headers = ok and type(message) == 'table' and message.headers
  return type(headers) == 'table' and tonumber(headers.issued_ms) or 0
end

for _, job in ipairs(due(deadlines_key, now)) do
  finish(job, 'expired')
  counts[1] = counts[1] + 1
end

-- The images of dead letters whose time is over.
for _, code in ipairs(redis.call('HKEYS', graves_key)) do
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', dead_key(code), '-inf', digits(now), 'LIMIT', 0, limit)) do
    local id = string.match(member, '^(.*):%d+$')
    redis.call('DEL', input_key(id))
    leave_grave(code, member)
    if redis.call('EXISTS', job_key(id)) == 1 then redis.call('HDEL', job_key(id), 'dead') end
  end
end

-- The waiting jobs of a lane whose tickets are gone.
local function reticket(model, lane, priority, list)
  local key = queued_key(model, priority, lane)
  local left_behind, scored = {}, {}
  for _, job in ipairs(due(key, math.min(now - grace_ms, oldest_ticket(list) - 1))) do
    left_behind[#left_behind + 1] = job.id
    scored[#scored + 1], scored[#scored + 2] = now_digits, job.id
    tickets[#tickets + 1] = ticket(job)
  end
  call_with(left_behind, 'ZREM', key)
  call_with(scored, 'ZADD', key)
  counts[4] = counts[4] + #left_behind
end

local i = 9
while i <= #ARGV do
  local model, lists = ARGV[i], tonumber(ARGV[i + 1])
  for _, job in ipairs(due(running_key(model), now)) do
    if gap then
      redis.call('ZADD', running_key(model), now + lease_ms / 2, job.id)
    else
      -- One lapse is most often a lost machine; at the second the job itself may be the cause.
      if lose(job, job.attempts > 1, max_attempts, lost_error) == 'queued' then tickets[#tickets + 1] = ticket(job) end
      counts[2] = counts[2] + 1
    end
  end
  for _, job in ipairs(due(deferred_key(model), now)) do
    enqueue(job)
    tickets[#tickets + 1] = ticket(job)
    counts[3] = counts[3] + 1
  end
  for _, lane in ipairs(redis.call('HKEYS', tenants.lanes_key(model))) do
    for p, priority in ipairs(priorities) do
      local list = ARGV[i + 1 + tonumber(lane) * #priorities + p]
      if tonumber(lane) * #priorities < lists then reticket(model, lane, priority, list) end
    end
  end
  if depth_of(model) == 0 and redis.call('ZCARD', running_key(model)) == 0 then redis.call('SREM', models_key, model) end
  i = i + 2 + lists
end
tenants.forget(limit)
settle()
return { counts, tickets }
