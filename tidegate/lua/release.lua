-- release: give running jobs back.
-- ARGV: prefix, retention, lease owner, then per job: id, delay ms, 'refund'|'spend'|'suspect', error of this try or ''
--   where 'suspect' spends the attempt, and the job runs alone from then on
-- Returns per job: {'queued', id, model, priority, issued_ms, deadline_ms or '', lane} (it wants a ticket now), {'deferred'}, {'expired'},
--   or {its state} when it is not the owner's to give back, or {'unknown'}.

local owner = ARGV[3]

-- Since when, try after try, the version that the job names has been missing.
local function note_absence(id, error)
  if string.find(error, '"code":"model_not_available"', 1, true) then
    redis.call('HSETNX', job_key(id), 'absent_ms', digits(now))
  else
    redis.call('HDEL', job_key(id), 'absent_ms')
  end
end

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
    if ARGV[i + 2] == 'suspect' then redis.call('HSET', job_key(job.id), 'suspect', '1') end
    if ARGV[i + 3] ~= '' then
      redis.call('HSET', job_key(job.id), 'error', ARGV[i + 3])
      note_absence(job.id, ARGV[i + 3])
    end
    if delay > 0 then
      redis.call('ZREM', queued_key(job.model, job.priority, job.lane), job.id)
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
