-- accept: admit new jobs, each wholly or not at all.
-- ARGV: prefix, retention, most jobs that wait a model, most that are open, most bytes open a model, most in all,
--   most jobs open a tenant or 0, how long an idempotency key is remembered in ms,
--   then per job: what it asks for, see `_asked_for` in tidegate/commands.py, as a JSON object; and its image
-- Returns per job:
--   {'accepted', created_ms, deadline_ms or '', lane}
--   {'answered'}        it ended at once, with the answer to another job of its tenant
--   {'replayed', id}    an earlier request under this idempotency key made that job
--   {'reused'}          an earlier request under it was another one
--   {'queue_full', which limit, depth, rate a second}, where depth and rate are those of what the limit is about: the
--     model for 'jobs' and 'model_bytes', or all models together for 'all_jobs' and 'bytes'
--   {'over_quota', 'jobs' or 'share', depth, rate}   its tenant has as many open as it may; of the model
--   {'too_late', ms}    its answer would come so long after its deadline
-- A job that is already there was accepted by an earlier, interrupted call: it is answered as accepted.

local max_jobs, max_all_jobs = tonumber(ARGV[3]), tonumber(ARGV[4])
local max_model_bytes, max_bytes = tonumber(ARGV[5]), tonumber(ARGV[6])
local max_tenant_jobs, remember_ms = tonumber(ARGV[7]), ARGV[8]
local replies = {}

-- A tenant may have so many times what is still free of a model's queue, and of the bytes. So one alone gets 9/10, two
-- that want all get 9/19 each, and there is room for who comes next.
-- Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998).
local SHARE = 9

-- What was there before, plus what this call has taken so far.
local open = redis.call('HMGET', open_key, 'jobs', 'bytes')
local open_jobs, open_bytes = tonumber(open[1] or '0'), tonumber(open[2] or '0')
local depths, bytes_of, parties = {}, {}, {}

local function learn(model)
  if depths[model] then return end
  depths[model] = depth_of(model)
  bytes_of[model] = tonumber(redis.call('HGET', open_key, 'bytes:' .. model) or '0')
end

-- What a tenant has open of a model, and in all.
local function party_of(tenant, model)
  local whose = tenant .. ' ' .. model
  if not parties[whose] then
    local taken = {}
    for _, other in pairs(parties) do
      if other.model == model then taken[other.lane] = (taken[other.lane] or 0) + other.jobs end
    end
    local f = redis.call('HMGET', tenants.key(tenant), 'jobs', 'bytes', 'jobs:' .. model)
    parties[whose] = {
      tenant = tenant, model = model, lane = tenants.lane_for(tenant, model, taken), jobs = 0, bytes = 0,
      all_jobs = tonumber(f[1] or '0'), all_bytes = tonumber(f[2] or '0'), model_jobs = tonumber(f[3] or '0'),
    }
  end
  return parties[whose]
end

local function rate_of(model) return recent_ends(model) * 1000 / RATE_TAU_MS end

local function full(limit, model)
  if limit == 'jobs' or limit == 'model_bytes' then
    return { 'queue_full', limit, depths[model], tostring(rate_of(model)) }
  end
  local rate = 0
  for _, each in ipairs(redis.call('SMEMBERS', models_key)) do rate = rate + rate_of(each) end
  return { 'queue_full', limit, open_jobs, tostring(rate) }
end

local function limit_reached(model, bytes)
  if depths[model] >= max_jobs then return 'jobs' end
  if open_jobs >= max_all_jobs then return 'all_jobs' end
  if bytes_of[model] + bytes > max_model_bytes then return 'model_bytes' end
  if open_bytes + bytes > max_bytes then return 'bytes' end
end

-- Nobody shares with a tenant without a name: it stands for all, where there are no keys.
local function quota_reached(party, bytes)
  if max_tenant_jobs > 0 and party.all_jobs + party.jobs >= max_tenant_jobs then return 'jobs' end
  if party.tenant == '' then return nil end
  local crowded = party.model_jobs + party.jobs >= SHARE * (max_jobs - depths[party.model])
  local heavy = party.all_bytes + party.bytes + bytes > SHARE * (max_bytes - open_bytes)
  if crowded or heavy then return 'share' end
end

local function take(party, bytes)
  depths[party.model], bytes_of[party.model] = depths[party.model] + 1, bytes_of[party.model] + bytes
  open_jobs, open_bytes = open_jobs + 1, open_bytes + bytes
  party.jobs, party.bytes = party.jobs + 1, party.bytes + bytes
end

local function job_at(i)
  local job = cjson.decode(ARGV[i])
  job.image, job.created = ARGV[i + 1], now_digits
  job.tenant = job.tenant or ''
  return job
end

local function idempotency_key(job) return prefix .. 'idem:' .. job.tenant .. ':' .. job.idempotency end

local function earlier(job)
  local known = job.idempotency and redis.call('GET', idempotency_key(job))
  if not known then return nil end
  local id, fingerprint = string.match(known, '^(%S+) (%S+)$')
  return fingerprint == job.fingerprint and { 'replayed', id } or { 'reused' }
end

local function refusal(job, party)
  local bytes = math.max(#job.image, 1)
  local limit = limit_reached(job.model, bytes)
  if limit then return full(limit, job.model) end
  local quota = quota_reached(party, bytes)
  if quota then return { 'over_quota', quota, party.model_jobs + party.jobs, tostring(rate_of(job.model)) } end
  local answer_in = job.expires_in and pace.answer_in_ms(job.model, party.lane, job.priority)
  if answer_in and answer_in > job.expires_in then return { 'too_late', digits(answer_in - job.expires_in) } end
end

-- The first write may be refused, because Redis is full: the largest one is the first, and then no other is.
local function write(job, deadline)
  if not job.url and not job.answer then redis.call('SET', input_key(job.id), job.image) end
  local fields = {
    'state', 'queued', 'model', job.model, 'priority', job.priority, 'created_ms', now_digits, 'bytes', digits(#job.image),
  }
  local function set(field, value)
    if value then
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
  end
  set('version', job.version)
  set('options', job.options)
  set('deadline_ms', deadline)
  set('webhook', job.webhook)
  set('image_url', job.url)
  set('image_host', job.host)
  set('tenant', job.tenant ~= '' and job.tenant)
  set('lane', job.lane ~= '0' and job.lane)
  set('same', not job.answer and job.same)
  redis.call('HSET', job_key(job.id), unpack(fields))
  if job.idempotency then
    redis.call('SET', idempotency_key(job), job.id .. ' ' .. job.fingerprint, 'PX', remember_ms)
  end
end

local function answer_at_once(job)
  job.lane = '0'
  write(job)
  local key = job_key(job.id)
  redis.call('HSET', key, 'state', 'succeeded', 'finished_ms', now_digits, 'result', job.answer, 'run', job.run, 'cached', '1')
  if job.webhook then outbox.add({ id = job.id, webhook = job.webhook }, 'succeeded') end
  redis.call('EXPIRE', key, ttl_seconds)
  tenants.list_ended(job, 'succeeded')
  return { 'answered' }
end

local function admit(job, party)
  local deadline = job.expires_in and digits(now + job.expires_in)
  job.lane = party.lane
  write(job, deadline)
  if deadline then redis.call('ZADD', deadlines_key, deadline, job.id) end
  if not job.url then
    redis.call('ZADD', queued_key(job.model, job.priority, job.lane), now, job.id)
  else
    redis.call('ZADD', fetching_key(job.model), now, job.id)
    lines.add('fetches', job.host, job.id, now)
  end
  redis.call('SADD', models_key, job.model)
  tenants.enlist(job)
  if job.same then same.join(job.same, job.id) end
  take(party, #job.image)
  return { 'accepted', now_digits, deadline or '', job.lane }
end

local function accept(job)
  local known = redis.call('HMGET', job_key(job.id), 'created_ms', 'deadline_ms', 'lane', 'cached')
  if known[4] then return { 'answered' } end
  if known[1] then return { 'accepted', known[1], known[2] or '', known[3] or '0' } end
  local before = earlier(job)
  if before then return before end
  if job.same then job.answer, job.run = same.answer(job.same) end
  if job.answer then return answer_at_once(job) end
  learn(job.model)
  local party = party_of(job.tenant, job.model)
  return refusal(job, party) or admit(job, party)
end

for i = 9, #ARGV, 2 do replies[#replies + 1] = accept(job_at(i)) end
for _, party in pairs(parties) do
  if party.jobs > 0 then weigh(party, party.jobs, party.bytes) end
end
tenants.settle()
lines.wake()
return replies
