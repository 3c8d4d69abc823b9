-- The outbox: the webhooks that ended jobs owe, each with a copy of its job as it ended.
-- `delivery:{id}` is a hash, `snapshot:{id}` the copy; both go some time after the delivery has ended, or when
-- nobody has sent it for `KEEP_SECONDS`. A delivery's id is that of the job and its end, so it is the same on every attempt.

local KEEP_SECONDS = 2 * 24 * 3600
-- How long a URL that said 410 is left alone.
local GONE_SECONDS = 30 * 24 * 3600

function outbox.key(id) return prefix .. 'delivery:' .. id end
function outbox.snapshot_key(id) return prefix .. 'snapshot:' .. id end
function outbox.gone_key(client) return prefix .. 'gone:' .. client end

function outbox.keep(id, seconds)
  redis.call('EXPIRE', outbox.key(id), seconds)
  redis.call('EXPIRE', outbox.snapshot_key(id), seconds)
end

-- Called while a job ends, when its record says so and has no time to live yet.
function outbox.add(job, state)
  local hook = cjson.decode(job.webhook)
  local wanted = hook.events == nil
  for _, event in ipairs(hook.events or {}) do wanted = wanted or event == state end
  if not wanted then return end
  local id = job.id .. '-' .. state
  redis.call('COPY', job_key(job.id), outbox.snapshot_key(id))
  redis.call('HSET', outbox.key(id), 'state', 'pending', 'job', job.id, 'event', 'job.' .. state,
    'url', hook.url, 'host', hook.host, 'client', hook.client or '', 'path', hook.path,
    'created_ms', digits(now), 'since_ms', digits(now), 'due_ms', digits(now))
  outbox.keep(id, KEEP_SECONDS)
  lines.add('outbox', hook.host, id, now)
end

-- Into the queue once more, whatever became of it; the time in which it is tried begins afresh.
function outbox.again(id, host)
  redis.call('HSET', outbox.key(id), 'state', 'pending', 'forced', '1', 'since_ms', digits(now), 'due_ms', digits(now))
  outbox.keep(id, KEEP_SECONDS)
  redis.call('ZREM', prefix .. 'undelivered', id)
  lines.add('outbox', host, id, now)
end

-- It will not be sent any more.
function outbox.close(id, state)
  redis.call('HDEL', outbox.key(id), 'due_ms')
  redis.call('HSET', outbox.key(id), 'state', state)
  outbox.keep(id, ttl_seconds)
  local undelivered = prefix .. 'undelivered'
  redis.call('ZREMRANGEBYSCORE', undelivered, '-inf', digits(now - ttl_seconds * 1000))
  if state ~= 'delivered' then redis.call('ZADD', undelivered, digits(now), id) end
  if redis.call('ZCARD', undelivered) > 0 then redis.call('EXPIRE', undelivered, ttl_seconds) end
end

-- A URL that said 410 is left alone, for the client whose it is.
function outbox.is_gone(client, url)
  local since = redis.call('ZSCORE', outbox.gone_key(client), redis.sha1hex(url))
  return since and tonumber(since) > now - GONE_SECONDS * 1000
end

function outbox.mark_gone(client, url)
  local key = outbox.gone_key(client)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now - GONE_SECONDS * 1000))
  redis.call('ZADD', key, digits(now), redis.sha1hex(url))
  redis.call('EXPIRE', key, GONE_SECONDS)
end

function outbox.unmark_gone(client, url)
  redis.call('ZREM', outbox.gone_key(client), redis.sha1hex(url))
end
