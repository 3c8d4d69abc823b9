-- claim: take up many jobs of one batch under one lease.
-- ARGV: prefix, ttl, lease owner, lease ms, 'alone' or 'together', then ids
-- Returns per id:
--   {'claimed', version, options, attempts, pauses, deadline_ms or '', now, image}
--   {'suspect'}   it may have killed its process before, so it must be claimed alone; nothing changed
--   {'canceled'} {'expired'} {'succeeded'} {'failed'}   it is over
--   {'waiting'}   it was put off and its time has not come
--   {'running'}   another worker has it
--   {'unknown'}   there is no such job (any more)
-- Claiming twice under one owner gives the same job again: the reply of the first call was lost.

local owner, lease_ms, alone = ARGV[3], tonumber(ARGV[4]), ARGV[5] == 'alone'

local wanted = { 'suspect', 'version', 'options', 'pauses' }

local function claim(id)
  local job = look(id, wanted)
  if not job then return { 'unknown' } end
  local again = job.state == 'running' and job.lease == owner
  if job.state ~= 'queued' and not again then return { job.state } end
  if past_deadline(job) then
    finish(job, 'expired')
    return { 'expired' }
  end
  local suspect, version, options, pauses = unpack(job.more)
  if suspect and not alone then return { 'suspect' } end
  if not again and not redis.call('ZSCORE', queued_key(job.model, job.priority), id) then
    local due = redis.call('ZSCORE', deferred_key(job.model), id)
    if due and tonumber(due) > now then return { 'waiting' } end
  end
  local image = redis.call('GET', input_key(id))
  if not image then
    finish(job, 'failed', 'error',
      '{"code":"internal_error","message":"The image of this job is gone from the store.","retryable":true}')
    return { 'failed' }
  end
  leave_indexes(job)
  local attempts = again and job.attempts or job.attempts + 1
  redis.call('ZADD', running_key(job.model), now + lease_ms, id)
  redis.call('HSET', job_key(id), 'state', 'running', 'lease', owner, 'started_ms', digits(now), 'attempts', digits(attempts))
  return {
    'claimed', version or '', options or '', attempts, pauses or '0',
    job.deadline and digits(job.deadline) or '', digits(now), image,
  }
end

local replies = {}
for i = 6, #ARGV do replies[#replies + 1] = claim(ARGV[i]) end
settle()
return replies
