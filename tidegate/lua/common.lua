-- Put before every script of the ledger. One script is one change of state, with all its indexes.
--
-- Order matters when Redis is full: Redis refuses a script's first write if it could grow memory, and none
-- after that. So whatever ends or moves a job first frees something (DEL, ZREM), and only `accept` begins
-- with a write that may be refused: then nothing at all has happened.

local prefix = ARGV[1]
-- In seconds, how long jobs stay that are over, and dead letters; most bytes of the dead letters' images; and how many
-- lanes a model has.
local retention = { string.match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+)$') }
local ttl_seconds, dead_ttl_seconds = tonumber(retention[1]), tonumber(retention[2])
local dead_bytes_limit, lanes_count = tonumber(retention[3]), tonumber(retention[4])

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local now = now_ms()

-- What a script adds up while it goes, and settles at its end in one write each: the ids of the jobs that it ended,
-- their number by model and state, and what they weighed, by tenant and model.
local ended = {}
local ends = {}
local freed = {}
-- And in `complete`, which sees each job once, what leaves: members by the index, and the keys of inputs.
local gathers = false
local leaving = {}
local inputs = {}
-- For the files that follow, which are called from here and call back.
local finish, past_deadline

-- What goes out to hosts that clients named, whose jobs are whose, shared answers, and the pace at which models work;
-- filled in by the files of these names, which follow this one.
local lines = {}
local outbox = {}
local tenants = {}
local same = {}
local pace = {}

-- Lua turns large numbers into 1.7e+12; keys and fields want digits.
local function digits(number)
  return string.format('%.0f', number)
end

local now_digits = digits(now)

-- One or two to the list under a key.
local function append(lists, key, first, second)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  local count = #list
  list[count + 1], list[count + 2] = first, second
end

-- Lua takes so many arguments, and not many more.
local MOST_ARGUMENTS = 4000

-- A command with any number of arguments, after a key or without one.
local function call_with(list, command, ...)
  local first = { command, ... }
  for i = 1, #list, MOST_ARGUMENTS do
    local arguments = { unpack(first) }
    for j = i, math.min(#list, i + MOST_ARGUMENTS - 1) do arguments[#arguments + 1] = list[j] end
    redis.call(unpack(arguments))
  end
end

-- The same with every list under its key.
local function call_each(lists, command)
  for key, list in pairs(lists) do call_with(list, command, key) end
end

local function job_key(id) return prefix .. 'job:' .. id end
local function input_key(id) return prefix .. 'input:' .. id end
local function queued_key(model, priority, lane)
  return prefix .. 'queued:' .. model .. ':' .. priority .. (lane == '0' and '' or ':' .. lane)
end
local function running_key(model) return prefix .. 'running:' .. model end
local function deferred_key(model) return prefix .. 'deferred:' .. model end
local function fetching_key(model) return prefix .. 'fetching:' .. model end
local function stats_key(model) return prefix .. 'stats:' .. model end
local function dead_key(code) return prefix .. 'dead:' .. code end
local deadlines_key = prefix .. 'deadlines'
local models_key = prefix .. 'models'
local open_key = prefix .. 'open'
local graves_key = prefix .. 'dead'

local priorities = { 'high', 'normal', 'low' }

local function depth_of(model)
  local depth = redis.call('ZCARD', deferred_key(model)) + redis.call('ZCARD', fetching_key(model))
  for _, lane in ipairs(redis.call('HKEYS', tenants.lanes_key(model))) do
    for _, priority in ipairs(priorities) do
      depth = depth + redis.call('ZCARD', queued_key(model, priority, lane))
    end
  end
  return depth
end

-- What every script must know of a job before it touches it, and what `more` asks for; nil when there is no such job.
local function look(id, more)
  local f = redis.call('HMGET', job_key(id),
    'state', 'model', 'priority', 'lease', 'attempts', 'deadline_ms', 'bytes', 'image_host', 'webhook',
    'created_ms', 'tenant', 'lane', 'same', 'pauses', 'error', unpack(more or {}))
  if not f[1] then return nil end
  return {
    id = id, state = f[1], model = f[2], priority = f[3], lease = f[4] or '',
    attempts = tonumber(f[5] or '0'), deadline = tonumber(f[6] or ''), bytes = tonumber(f[7]),
    image_host = f[8], webhook = f[9],
    created = f[10], tenant = f[11] or '', lane = f[12] or '0', same = f[13],
    pauses = f[14], tried = f[15],
    more = more and { unpack(f, 16, 15 + #more) },
  }
end

-- A job stands in one index: that of its state, a queued one that was put off in `deferred`, and one whose image is
-- still to be fetched in `fetching` and in its host's line.
local function leave_indexes(job)
  if job.image_host then
    redis.call('ZREM', fetching_key(job.model), job.id)
    lines.remove('fetches', job.image_host, job.id)
  elseif job.state == 'running' then
    redis.call('ZREM', running_key(job.model), job.id)
  elseif redis.call('ZREM', queued_key(job.model, job.priority, job.lane), job.id) == 0 then
    redis.call('ZREM', deferred_key(job.model), job.id)
  end
end

-- What is open, that is accepted and not ended: the jobs, the bytes of their images, and those bytes by model; and the
-- same for the tenant. `job` is whatever has a tenant, a model and a lane.
local function weigh(job, jobs, bytes)
  -- Of nothing, minus nothing is left as -0, which Redis does not read.
  jobs, bytes = jobs + 0, bytes + 0
  tenants.weigh(job, jobs, bytes)
  local model = job.model
  redis.call('HINCRBY', open_key, 'bytes', bytes)
  if redis.call('HINCRBY', open_key, 'bytes:' .. model, bytes) <= 0 then
    redis.call('HDEL', open_key, 'bytes:' .. model)
  end
  if redis.call('HINCRBY', open_key, 'jobs', jobs) <= 0 then redis.call('DEL', open_key) end
end

-- Dead letters: jobs that failed for a cause of ours. Their images stay for a while, so that they can be run again.
-- One index a code, by the time at which the image goes; a member tells its bytes too, because the record may go
-- first. A hash counts the letters by code, and their bytes in all.
local function grave(id, bytes)
  return id .. ':' .. digits(bytes)
end

local function leave_grave(code, member)
  if redis.call('ZREM', dead_key(code), member) == 0 then return end
  if redis.call('HINCRBY', graves_key, code, -1) <= 0 then redis.call('HDEL', graves_key, code) end
  local bytes = tonumber(string.match(member, ':(%d+)$'))
  if redis.call('HINCRBY', graves_key, 'bytes', -bytes) <= 0 then redis.call('HDEL', graves_key, 'bytes') end
end

-- Whether there was room. A letter that finds none is an ordinary failure: it pushes no other out.
local function bury(job, code)
  local held = tonumber(redis.call('HGET', graves_key, 'bytes') or '0')
  if dead_ttl_seconds == 0 or held + job.bytes > dead_bytes_limit then return false end
  -- The sweep takes it away in time; this is for when nobody sweeps.
  if redis.call('EXPIRE', input_key(job.id), dead_ttl_seconds) == 0 then return false end
  redis.call('ZADD', dead_key(code), now + dead_ttl_seconds * 1000, grave(job.id, job.bytes))
  redis.call('HINCRBY', graves_key, code, 1)
  redis.call('HINCRBY', graves_key, 'bytes', job.bytes)
  redis.call('HSET', job_key(job.id), 'dead', code)
  return true
end

-- The rate at which a model's jobs end, as a counter that decays with a time constant of 10 s.
local RATE_TAU_MS = 10000
local function recent_ends(model)
  local f = redis.call('HMGET', stats_key(model), 'rate_count', 'rate_at_ms')
  -- A clock that was set back must not make the counter grow.
  local since = math.max(0, now - tonumber(f[2] or now))
  return tonumber(f[1] or '0') * math.exp(-since / RATE_TAU_MS)
end

local function note_end(job, state)
  ends[job.model] = ends[job.model] or {}
  ends[job.model][state] = (ends[job.model][state] or 0) + 1
  local whose = job.tenant .. ' ' .. job.model
  local its = freed[whose] or { tenant = job.tenant, model = job.model, lane = job.lane, jobs = 0, bytes = 0 }
  its.jobs, its.bytes = its.jobs + 1, its.bytes + job.bytes
  freed[whose] = its
  ended[#ended + 1] = job.id
end

-- Into a terminal state, once and for all. `name` and `document` are the result or the error, `run` the batch;
-- `dead` tells that the error's cause is ours.
function finish(job, state, name, document, run, dead)
  local buried = dead and bury(job, cjson.decode(document).code)
  -- The first one's at once: see above.
  if gathers and #ended > 0 and job.state == 'running' then
    append(leaving, running_key(job.model), job.id)
    if job.deadline then append(leaving, deadlines_key, job.id) end
    if not buried then inputs[#inputs + 1] = input_key(job.id) end
  else
    leave_indexes(job)
    if job.deadline then redis.call('ZREM', deadlines_key, job.id) end
    if not buried then redis.call('DEL', input_key(job.id)) end
  end
  local fields = { 'state', state, 'finished_ms', now_digits }
  local count = 4
  if name then
    fields[count + 1], fields[count + 2] = name, document
    count = count + 2
  end
  if run and run ~= '' then
    fields[count + 1], fields[count + 2] = 'run', run
    count = count + 2
  end
  if job.cached then fields[count + 1], fields[count + 2] = 'cached', '1' end
  local key = job_key(job.id)
  redis.call('HSET', key, unpack(fields))
  if job.image_host then redis.call('HDEL', key, 'image_host', 'image_url', 'fetches') end
  -- Of an earlier try.
  if name == 'result' and job.tried then redis.call('HDEL', key, 'error') end
  -- Which copies the record as it is by now.
  if job.webhook then outbox.add(job, state) end
  redis.call('EXPIRE', key, buried and math.max(ttl_seconds, dead_ttl_seconds) or ttl_seconds)
  tenants.retire(job, state)
  note_end(job, state)
  if job.same then same.leave(job, name == 'result' and document, run or '') end
end

-- Back into the queue, with a fresh place; its ticket is for the caller to issue.
local function enqueue(job)
  leave_indexes(job)
  redis.call('HSET', job_key(job.id), 'state', 'queued')
  redis.call('HDEL', job_key(job.id), 'lease')
  redis.call('ZADD', queued_key(job.model, job.priority, job.lane), now, job.id)
end

function past_deadline(job)
  return job.deadline ~= nil and job.deadline <= now
end

-- The process that ran it is gone. A job that may be the cause is marked, and runs alone from then on.
local function lose(job, suspect, max_attempts, error)
  if job.attempts >= max_attempts then
    finish(job, 'failed', 'error', error, nil, true)
    return 'failed'
  end
  enqueue(job)
  if suspect then redis.call('HSET', job_key(job.id), 'suspect', '1') end
  return 'queued'
end

-- What a ticket for the job needs to say; it is issued now, as its place in the queue tells.
local function ticket(job)
  return { job.id, job.model, job.priority, now_digits, job.deadline and digits(job.deadline) or '', job.lane }
end

local function count_ends(model, states)
  local key = stats_key(model)
  local count = 0
  for state, number in pairs(states) do
    redis.call('HINCRBY', key, state, number)
    count = count + number
  end
  redis.call('HSET', key, 'rate_count', tostring(recent_ends(model) + count), 'rate_at_ms', now_digits)
  local answered = (states.succeeded or 0) + (states.failed or 0)
  if answered > 0 then pace.learn(model, answered, depth_of(model) > 0) end
  redis.call('EXPIRE', key, ttl_seconds)
end

-- The last step of every script that may end jobs. One message wakes every waiting client of every API process.
local function settle()
  lines.wake()
  if #ended == 0 then return end
  call_each(leaving, 'ZREM')
  call_with(inputs, 'DEL')
  for _, its in pairs(freed) do weigh(its, -its.jobs, -its.bytes) end
  for model, states in pairs(ends) do count_ends(model, states) end
  tenants.settle()
  tenants.forget(2 * #ended)
  redis.call('PUBLISH', prefix .. 'ended', table.concat(ended, ' '))
end
