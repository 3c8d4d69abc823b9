-- requeue: run dead letters again, each as a new job that takes over its image.
-- ARGV: prefix, retention, then per letter: id, id of the new job
-- Returns per letter: {'queued', new id, model, priority, issued_ms, '', lane} (it wants a ticket now), or
--   {'requeued', new id}  an earlier call did
--   {'gone'}              it failed, and its image is not kept (any more)
--   {'not_failed'}        it waits, runs, or ended otherwise
--   {'unknown'}
-- The old job stays as it ended, for terminal is final; the two tell of each other. The new one has no deadline.

local not_asked_for = {
  attempts = true, dead = true, deadline_ms = true, error = true, finished_ms = true, lease = true, pauses = true,
  requeued_as = true, requeue_of = true, run = true, started_ms = true, state = true, created_ms = true,
  lane = true, same = true, absent_ms = true,
}

local function copy(old_id, id)
  local fields = { 'state', 'queued', 'created_ms', digits(now), 'requeue_of', old_id }
  local old = redis.call('HGETALL', job_key(old_id))
  for i = 1, #old, 2 do
    local name, value = old[i], old[i + 1]
    -- The webhook tells its receiver the job's path.
    if name == 'webhook' then value = string.gsub(value, (string.gsub(old_id, '%-', '%%-')), id) end
    if not not_asked_for[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  redis.call('HSET', job_key(id), unpack(fields))
end

local function requeue(old_id, id)
  local old = look(old_id, { 'dead', 'requeued_as' })
  if not old then return { 'unknown' } end
  local code, before = old.more[1], old.more[2]
  if before and before ~= id then return { 'requeued', before } end
  local new = { id = id, tenant = old.tenant, model = old.model }
  if before then
    new.lane = redis.call('HGET', job_key(id), 'lane') or '0'
  else
    if old.state ~= 'failed' then return { 'not_failed' } end
    if not code or redis.call('EXISTS', input_key(old_id)) == 0 then return { 'gone' } end
    leave_grave(code, grave(old_id, old.bytes))
    redis.call('RENAME', input_key(old_id), input_key(id))
    redis.call('PERSIST', input_key(id))
    new.lane = tenants.lane_for(old.tenant, old.model)
    copy(old_id, id)
    if new.lane ~= '0' then redis.call('HSET', job_key(id), 'lane', new.lane) end
    redis.call('HDEL', job_key(old_id), 'dead')
    redis.call('HSET', job_key(old_id), 'requeued_as', id)
    redis.call('ZADD', queued_key(old.model, old.priority, new.lane), now, id)
    tenants.enlist(new)
    redis.call('SADD', models_key, old.model)
    weigh(new, 1, old.bytes)
  end
  return { 'queued', id, old.model, old.priority, digits(now), '', new.lane }
end

local replies = {}
for i = 3, #ARGV, 2 do replies[#replies + 1] = requeue(ARGV[i], ARGV[i + 1]) end
return replies
