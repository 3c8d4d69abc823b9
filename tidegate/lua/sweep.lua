-- sweep: find what fell between the chairs. One worker at a time, by a lock that ends by itself.
-- ARGV: prefix, ttl, lock ms, grace ms, max attempts, error for jobs lost at their last attempt, most jobs a kind,
--   then per model: name, and the broker's list keys for its priorities high, normal, low
-- Returns {} when another worker holds the lock, else {counts, tickets}:
--   counts = {expired, lost, due, reticketed, more (1 when a limit cut the work short)}
--   tickets = list of {id, model, priority, issued_ms, deadline_ms or ''} that want a ticket now
-- Work is in proportion to what is due, at any depth.

local lock_ms, grace_ms, max_attempts = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lost_error, limit = ARGV[6], tonumber(ARGV[7])

if lock_ms > 0 then
  local lock = prefix .. 'sweep'
  if redis.call('EXISTS', lock) == 1 then return {} end
  redis.call('DEL', lock)
  redis.call('SET', lock, '1', 'PX', lock_ms)
end

local counts = { 0, 0, 0, 0, 0 }
local tickets = {}

-- The jobs that are due by an index. An id whose record is gone (evicted, deleted by hand) leaves it.
local function due(key, before)
  local ids = redis.call('ZRANGEBYSCORE', key, '-inf', digits(before), 'LIMIT', 0, limit)
  if #ids == limit then counts[5] = 1 end
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

for i = 8, #ARGV, 4 do
  local model = ARGV[i]
  for _, job in ipairs(due(running_key(model), now)) do
    -- One lapse is most often a lost machine; at the second the job itself may be the cause.
    if lose(job, job.attempts > 1, max_attempts, lost_error) == 'queued' then tickets[#tickets + 1] = ticket(job) end
    counts[2] = counts[2] + 1
  end
  for _, job in ipairs(due(deferred_key(model), now)) do
    enqueue(job)
    tickets[#tickets + 1] = ticket(job)
    counts[3] = counts[3] + 1
  end
  for p, priority in ipairs(priorities) do
    local key = queued_key(model, priority)
    for _, job in ipairs(due(key, math.min(now - grace_ms, oldest_ticket(ARGV[i + p]) - 1))) do
      redis.call('ZREM', key, job.id)
      redis.call('ZADD', key, now, job.id)
      tickets[#tickets + 1] = ticket(job)
      counts[4] = counts[4] + 1
    end
  end
  if depth_of(model) == 0 and redis.call('ZCARD', running_key(model)) == 0 then redis.call('SREM', models_key, model) end
end
settle()
return { counts, tickets }
