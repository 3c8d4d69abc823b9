-- release: give running jobs back.
-- ARGV: prefix, ttl, lease owner, then per job: id, delay ms, 'refund'|'spend', error of this try or ''
-- Returns per job: {'queued', id, model, priority, issued_ms, deadline_ms or ''} (it wants a ticket now), {'deferred'}, {'expired'},
--   or {its state} when it is not the owner's to give back, or {'unknown'}.

local owner = ARGV[3]
local replies = {}
for i = 4, #ARGV, 4 do
  local job, delay = look(ARGV[i]), tonumber(ARGV[i + 1])
  local reply
  if not job then
    reply = { 'unknown' }
  elseif job.state ~= 'running' or job.lease ~= owner then
    reply = { job.state }
  elseif past_deadline(job) then
    finish(job, 'expired')
    reply = { 'expired' }
  else
    enqueue(job)
    if ARGV[i + 2] == 'refund' then redis.call('HINCRBY', job_key(job.id), 'attempts', -1) end
    if ARGV[i + 3] ~= '' then redis.call('HSET', job_key(job.id), 'error', ARGV[i + 3]) end
    if delay > 0 then
      redis.call('ZREM', queued_key(job.model, job.priority), job.id)
      redis.call('ZADD', deferred_key(job.model), now + delay, job.id)
      redis.call('HINCRBY', job_key(job.id), 'pauses', 1)
      reply = { 'deferred' }
    else
      reply = { 'queued', unpack(ticket(job)) }
    end
  end
  replies[#replies + 1] = reply
end
settle()
return replies
