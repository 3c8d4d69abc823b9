-- list: the ids of a tenant's jobs, the newest first. Changes nothing.
-- ARGV: prefix, retention, tenant, how many, created_ms and id of the job after which to begin or '' and '', state or '',
--   then the models to look at
-- Returns {id, created_ms} for each.
-- Work is in proportion to what is returned, beside the jobs that run, which are few.

local tenant, limit, after_ms, after_id, state = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7]
local every_list = { 'open', 'succeeded', 'failed', 'canceled', 'expired' }
local found = {}

local function comes_after(id, created)
  if after_ms == '' then return true end
  local after = tonumber(after_ms)
  return created < after or (created == after and id < after_id)
end

local function is_wanted(id)
  return state ~= 'queued' or redis.call('HGET', job_key(id), 'state') == 'queued'
end

local function look_through(key)
  local offset, taken = 0, 0
  repeat
    local page = redis.call('ZREVRANGEBYSCORE', key, after_ms == '' and '+inf' or after_ms, '-inf',
      'WITHSCORES', 'LIMIT', offset, limit)
    for i = 1, #page, 2 do
      local id, created = page[i], tonumber(page[i + 1])
      if taken < limit and comes_after(id, created) and is_wanted(id) then
        found[#found + 1] = { id, created }
        taken = taken + 1
      end
    end
    offset = offset + limit
  until taken == limit or #page < 2 * limit
end

local function look_at_running(model)
  for _, id in ipairs(redis.call('ZRANGE', running_key(model), 0, -1)) do
    local job = look(id)
    if job and job.tenant == tenant and comes_after(id, tonumber(job.created)) then found[#found + 1] = { id, tonumber(job.created) } end
  end
end

local lists = state == '' and every_list or state == 'queued' and { 'open' } or { state }
for i = 8, #ARGV do
  if state == 'running' then
    look_at_running(ARGV[i])
  else
    for _, list in ipairs(lists) do look_through(tenants.own_key(tenant, ARGV[i], list)) end
  end
end
table.sort(found, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] > b[1]) end)
local replies = {}
for i = 1, math.min(limit, #found) do replies[i] = { found[i][1], digits(found[i][2]) } end
return replies
