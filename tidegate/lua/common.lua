-- Put before every script of the ledger. One script is one change of state, with all its indexes.
--
-- Order matters when Redis is full: Redis refuses a script's first write if it could grow memory, and none
-- after that. So whatever ends or moves a job first frees something (DEL, ZREM), and only `accept` begins
-- with a write that may be refused: then nothing at all has happened.

local prefix = ARGV[1]
local ttl_seconds = tonumber(ARGV[2])

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local now = now_ms()

-- What a script adds up while it goes, and settles at its end in one write each.
local ended = {}
local freed_bytes = 0
local ends = {}

-- Lua turns large numbers into 1.7e+12; keys and fields want digits.
local function digits(number)
  return string.format('%.0f', number)
end

local function job_key(id) return prefix .. 'job:' .. id end
local function input_key(id) return prefix .. 'input:' .. id end
local function queued_key(model, priority) return prefix .. 'queued:' .. model .. ':' .. priority end
local function running_key(model) return prefix .. 'running:' .. model end
local function deferred_key(model) return prefix .. 'deferred:' .. model end
local function stats_key(model) return prefix .. 'stats:' .. model end
local deadlines_key = prefix .. 'deadlines'
local models_key = prefix .. 'models'
local bytes_key = prefix .. 'bytes'

local priorities = { 'high', 'normal', 'low' }

local function depth_of(model)
  local depth = redis.call('ZCARD', deferred_key(model))
  for _, priority in ipairs(priorities) do
    depth = depth + redis.call('ZCARD', queued_key(model, priority))
  end
  return depth
end

-- What every script must know of a job before it touches it, and what `more` asks for; nil when there is no such job.
local function look(id, more)
  local f = redis.call('HMGET', job_key(id),
    'state', 'model', 'priority', 'lease', 'attempts', 'deadline_ms', 'bytes', unpack(more or {}))
  if not f[1] then return nil end
  return {
    id = id, state = f[1], model = f[2], priority = f[3], lease = f[4] or '',
    attempts = tonumber(f[5] or '0'), deadline = tonumber(f[6] or ''), bytes = tonumber(f[7]),
    more = more and { unpack(f, 8, 7 + #more) },
  }
end

-- A job stands in one index: that of its state, and a queued one that was put off in `deferred`.
local function leave_indexes(job)
  if job.state == 'running' then
    redis.call('ZREM', running_key(job.model), job.id)
  elseif redis.call('ZREM', queued_key(job.model, job.priority), job.id) == 0 then
    redis.call('ZREM', deferred_key(job.model), job.id)
  end
end

-- The rate at which a model's jobs end, as a counter that decays with a time constant of 10 s.
local RATE_TAU_MS = 10000
local function recent_ends(model)
  local f = redis.call('HMGET', stats_key(model), 'rate_count', 'rate_at_ms')
  -- A clock that was set back must not make the counter grow.
  local since = math.max(0, now - tonumber(f[2] or now))
  return tonumber(f[1] or '0') * math.exp(-since / RATE_TAU_MS)
end

-- Into a terminal state, once and for all. `name` and `document` are the result or the error, `run` the batch.
local function finish(job, state, name, document, run)
  redis.call('DEL', input_key(job.id))
  leave_indexes(job)
  if job.deadline then redis.call('ZREM', deadlines_key, job.id) end
  local fields = { 'state', state, 'finished_ms', digits(now) }
  local function set(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if name then set(name, document) end
  if run and run ~= '' then set('run', run) end
  local key = job_key(job.id)
  redis.call('HSET', key, unpack(fields))
  if name == 'result' and job.attempts ~= 1 then redis.call('HDEL', key, 'error') end
  redis.call('EXPIRE', key, ttl_seconds)
  freed_bytes = freed_bytes + job.bytes
  ends[job.model] = ends[job.model] or {}
  ends[job.model][state] = (ends[job.model][state] or 0) + 1
  ended[#ended + 1] = job.id
end

-- Back into the queue, with a fresh place; its ticket is for the caller to issue.
local function enqueue(job)
  leave_indexes(job)
  redis.call('HSET', job_key(job.id), 'state', 'queued')
  redis.call('HDEL', job_key(job.id), 'lease')
  redis.call('ZADD', queued_key(job.model, job.priority), now, job.id)
end

local function past_deadline(job)
  return job.deadline ~= nil and job.deadline <= now
end

-- The process that ran it is gone. A job that may be the cause is marked, and runs alone from then on.
local function lose(job, suspect, max_attempts, error)
  if job.attempts >= max_attempts then
    finish(job, 'failed', 'error', error)
    return 'failed'
  end
  enqueue(job)
  if suspect then redis.call('HSET', job_key(job.id), 'suspect', '1') end
  return 'queued'
end

-- What a ticket for the job needs to say; it is issued now, as its place in the queue tells.
local function ticket(job)
  return { job.id, job.model, job.priority, digits(now), job.deadline and digits(job.deadline) or '' }
end

local function count_ends(model, states)
  local key = stats_key(model)
  local count = 0
  for state, number in pairs(states) do
    redis.call('HINCRBY', key, state, number)
    count = count + number
  end
  redis.call('HSET', key, 'rate_count', tostring(recent_ends(model) + count), 'rate_at_ms', digits(now))
  redis.call('EXPIRE', key, ttl_seconds)
end

-- The last step of every script that may end jobs. One message wakes every waiting client of every API process.
local function settle()
  if #ended == 0 then return end
  if redis.call('DECRBY', bytes_key, freed_bytes) <= 0 then redis.call('DEL', bytes_key) end
  for model, states in pairs(ends) do count_ends(model, states) end
  redis.call('PUBLISH', prefix .. 'ended', table.concat(ended, ' '))
end
