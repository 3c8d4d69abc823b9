-- Tenants: whose a job is, what each has open, which of a model's lanes it waits in, and the list of its own jobs.
--   tenant:{name}   hash of what it has open: `jobs`, `bytes`, and by model `jobs:{model}` and `lane:{model}`
--   lanes:{model}   hash: how many open jobs each lane has
--   own:{name}:{model}:{open or how it ended}   zset of ids by creation
--   retired         list of the ended jobs in the order of their ends, so that they leave `own` with their records
-- A lane is a queue of its own in the broker, and workers take turns between lanes: so a tenant with many jobs is ahead
-- of its own only. A tenant keeps its lane of a model until none of its jobs there is open. It gets the one with the
-- fewest jobs, so that who comes to a flood is given another lane, as long as there are more lanes than floods.

function tenants.key(tenant) return prefix .. 'tenant:' .. tenant end
function tenants.lanes_key(model) return prefix .. 'lanes:' .. model end
function tenants.own_key(tenant, model, list) return prefix .. 'own:' .. tenant .. ':' .. model .. ':' .. list end
local retired_key = prefix .. 'retired'

-- The lanes of a model that have open jobs, with their number.
function tenants.loads(model)
  local flat, loads = redis.call('HGETALL', tenants.lanes_key(model)), {}
  for i = 1, #flat, 2 do loads[flat[i]] = tonumber(flat[i + 1]) end
  return loads
end

-- `taken` tells how many jobs this script has put in which lane so far.
function tenants.lane_for(tenant, model, taken)
  local lane = redis.call('HGET', tenants.key(tenant), 'lane:' .. model)
  if lane then return lane end
  local loads = tenants.loads(model)
  local function load(of) return (loads[of] or 0) + (taken and taken[of] or 0) end
  local best = '0'
  for i = 1, lanes_count - 1 do
    if load(tostring(i)) < load(best) then best = tostring(i) end
  end
  return best
end

local function add(key, field, number)
  local sum = redis.call('HINCRBY', key, field, number)
  if sum <= 0 then redis.call('HDEL', key, field) end
  return sum
end

-- `job` is whatever has a tenant, a model and a lane.
function tenants.weigh(job, jobs, bytes)
  local key = tenants.key(job.tenant)
  if bytes ~= 0 then add(key, 'bytes', bytes) end
  if jobs == 0 then return end
  add(tenants.lanes_key(job.model), job.lane, jobs)
  if add(key, 'jobs:' .. job.model, jobs) > 0 then
    redis.call('HSET', key, 'lane:' .. job.model, job.lane)
  else
    redis.call('HDEL', key, 'lane:' .. job.model)
  end
  if add(key, 'jobs', jobs) <= 0 then redis.call('DEL', key) end
end

-- Written into the list of its tenant's jobs as one that is open.
function tenants.enlist(job)
  redis.call('ZADD', tenants.own_key(job.tenant, job.model, 'open'), now_digits, job.id)
end

-- What this script takes out of lists and puts into others, by list, and what it adds to `retired`.
local left, joined, retiring = {}, {}, {}

-- Into the list of its tenant's ended jobs.
function tenants.list_ended(job, state)
  append(joined, tenants.own_key(job.tenant, job.model, state), job.created, job.id)
  retiring[#retiring + 1] = table.concat({ now_digits, job.id, state, job.tenant, job.model }, ' ')
end

-- Moved in the list of its tenant's jobs, because it ended.
function tenants.retire(job, state)
  append(left, tenants.own_key(job.tenant, job.model, 'open'), job.id)
  tenants.list_ended(job, state)
end

-- Write down the moves: a command a list, instead of four a job.
function tenants.settle()
  if #retiring == 0 then return end
  call_each(left, 'ZREM')
  call_each(joined, 'ZADD')
  for key in pairs(joined) do redis.call('EXPIRE', key, ttl_seconds) end
  call_with(retiring, 'RPUSH', retired_key)
  -- For when nothing ends any more, and nobody sweeps.
  redis.call('EXPIRE', retired_key, ttl_seconds)
end

-- Take up to so many jobs from the lists whose records are gone by now.
function tenants.forget(most)
  local first = redis.call('LRANGE', retired_key, 0, most - 1)
  local count = 0
  for _, entry in ipairs(first) do
    local at, id, state, tenant, model = string.match(entry, '^(%d+) (%S+) (%S+) (%S*) (.*)$')
    if tonumber(at) + ttl_seconds * 1000 > now then break end
    redis.call('ZREM', tenants.own_key(tenant, model, state), id)
    count = count + 1
  end
  if count > 0 then redis.call('LTRIM', retired_key, count, -1) end
end
