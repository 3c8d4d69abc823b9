-- accept: admit new jobs, each wholly or not at all.
-- ARGV: prefix, ttl, max jobs a model, max bytes, then per job:
--   id, model, version, priority, expires_in_ms or '', options, image
-- Returns per job: {'accepted', created_ms, deadline_ms} or {'queue_full', 'jobs'|'bytes', depth, rate a second}
-- A job that is already there was accepted by an earlier, interrupted call: it is answered as accepted.

local max_jobs, max_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local replies = {}

local function rate_of(model)
  return tostring(recent_ends(model) * 1000 / RATE_TAU_MS)
end

for i = 5, #ARGV, 7 do
  local id, model, version, priority = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local expires_in, options, image = tonumber(ARGV[i + 4]), ARGV[i + 5], ARGV[i + 6]
  local known = redis.call('HMGET', job_key(id), 'created_ms', 'deadline_ms')
  local depth = depth_of(model)
  local reply
  if known[1] then
    reply = { 'accepted', known[1], known[2] or '' }
  elseif depth >= max_jobs then
    reply = { 'queue_full', 'jobs', depth, rate_of(model) }
  elseif tonumber(redis.call('GET', bytes_key) or '0') + #image > max_bytes then
    reply = { 'queue_full', 'bytes', depth, rate_of(model) }
  else
    local deadline = expires_in and digits(now + expires_in) or ''
    redis.call('SET', input_key(id), image)
    redis.call('HSET', job_key(id), 'state', 'queued', 'model', model, 'priority', priority,
      'created_ms', digits(now), 'bytes', digits(#image))
    if version ~= '' then redis.call('HSET', job_key(id), 'version', version) end
    if options ~= '' then redis.call('HSET', job_key(id), 'options', options) end
    if deadline ~= '' then
      redis.call('HSET', job_key(id), 'deadline_ms', deadline)
      redis.call('ZADD', deadlines_key, deadline, id)
    end
    redis.call('ZADD', queued_key(model, priority), now, id)
    redis.call('SADD', models_key, model)
    redis.call('INCRBY', bytes_key, #image)
    reply = { 'accepted', digits(now), deadline }
  end
  replies[#replies + 1] = reply
end
return replies
