-- start_delivery: begin an attempt to deliver a webhook.
-- ARGV: prefix, retention, id, lease from `take`, lease ms of this attempt
-- Returns {} when there is nothing to do: it is over, gone, or another worker's by now. Else
--   {lease, url, client, path, job, event, attempts with this one, ms since its first, fields of the job as it ended}

local id, lease = ARGV[3], ARGV[4]
local f = redis.call('HMGET', outbox.key(id), 'host', 'state', 'url', 'client', 'path', 'job', 'event', 'since_ms', 'forced')
local host, state, url, client = f[1], f[2], f[3], f[4]
if not host or not lines.held('outbox', host, id, lease) then return {} end
local disabled = state == 'pending' and outbox.is_gone(client, url) and not f[9]
if state ~= 'pending' or disabled then
  lines.remove('outbox', host, id)
  if disabled then outbox.close(id, 'disabled') end
  lines.wake()
  return {}
end
local till = lines.renew('outbox', host, id, tonumber(ARGV[5]))
local attempts = redis.call('HINCRBY', outbox.key(id), 'attempts', 1)
redis.call('HSET', outbox.key(id), 'last_ms', digits(now))
local snapshot = redis.call('HGETALL', outbox.snapshot_key(id))
return { till, url, client, f[5], f[6], f[7], attempts, digits(now - tonumber(f[8])), snapshot }
