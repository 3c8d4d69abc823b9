-- backlog: how the jobs of models stand; changes nothing.
-- ARGV: prefix, retention, then models
-- Returns per model {jobs that wait, jobs that run, milliseconds for which the oldest of those in front has waited
--   or '', ends a second as of late, the model's pace or ''}

-- The one that came first is in front of a queue, unless it was tried before and then put behind the others.
local function waits_since(model)
  local keys = { deferred_key(model), fetching_key(model) }
  for _, lane in ipairs(redis.call('HKEYS', tenants.lanes_key(model))) do
    for _, priority in ipairs(priorities) do keys[#keys + 1] = queued_key(model, priority, lane) end
  end
  local oldest
  for _, key in ipairs(keys) do
    local id = redis.call('ZRANGE', key, 0, 0)[1]
    local created = id and tonumber(redis.call('HGET', job_key(id), 'created_ms') or '')
    if created and (not oldest or created < oldest) then oldest = created end
  end
  return oldest
end

local replies = {}
for i = 3, #ARGV do
  local model = ARGV[i]
  local since, rate = waits_since(model), pace.of(model)
  replies[#replies + 1] = {
    depth_of(model), redis.call('ZCARD', running_key(model)),
    since and digits(math.max(0, now - since)) or '', tostring(recent_ends(model) * 1000 / RATE_TAU_MS),
    rate and tostring(rate) or '',
  }
end
return replies
