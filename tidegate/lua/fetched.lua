-- fetched: end the fetching of a job's image, well or badly.
-- ARGV: prefix, retention, id, lease from `start_fetch`, 'works'|'fails' (the host), the error that ends the job or '',
--   ms after which to fetch it once more or ''
-- Returns {'queued', id, model, priority, issued_ms, deadline_ms or '', lane} (it wants a ticket now), {'fetching'} (once more), or {its state},
--   or {'unknown'}.

local id = ARGV[3]
local job = look(id)
if not job then return { 'unknown' } end
if not job.image_host then return { job.state } end
if not lines.held('fetches', job.image_host, id, ARGV[4]) then return { 'fetching' } end

lines.free('fetches', job.image_host, id, ARGV[5] == 'works', 0)
local reply
if past_deadline(job) then
  finish(job, 'expired')
  reply = { 'expired' }
elseif ARGV[7] ~= '' then
  redis.call('HINCRBY', job_key(id), 'fetches', -1)
  lines.add('fetches', job.image_host, id, now + tonumber(ARGV[7]))
  reply = { 'fetching' }
elseif ARGV[6] ~= '' then
  finish(job, 'failed', 'error', ARGV[6])
  reply = { 'failed' }
else
  enqueue(job)
  redis.call('HDEL', job_key(id), 'image_host', 'image_url', 'fetches')
  reply = { 'queued', unpack(ticket(job)) }
end
settle()
return reply
