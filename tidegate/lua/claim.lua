-- claim: take up many jobs of one batch under one lease.
-- ARGV: prefix, retention, lease owner, lease ms, 'alone' or 'together', then ids
-- Returns per id:
--   {'claimed', version, options, attempts, pauses, deadline_ms or '', now, absent_ms or ''}
--   {'suspect'}   it may have killed its process before, so it must be claimed alone; nothing changed
--   {'canceled'} {'expired'} {'succeeded'} {'failed'}   it is over
--   {'waiting'}   it was put off and its time has not come, its image is still to be fetched, or the same image is being
--                 answered for another job of its tenant
--   {'running'}   another worker has it
--   {'unknown'}   there is no such job (any more)
-- Claiming twice under one owner gives the same job again: the reply of the first call was lost.
-- The images are for the caller to read after it: a script would copy each of them three times. A job whose image is gone
-- by then has ended meanwhile, or cannot be run.

local owner, lease_ms, alone = ARGV[3], tonumber(ARGV[4]), ARGV[5] == 'alone'

local wanted = { 'suspect', 'version', 'options', 'absent_ms' }

-- What moves from the queue to what runs, by index: written at the end, a command an index.
local begun, running = {}, {}
local lease_till = digits(now + lease_ms)
local moved = false

local function move(job)
  if moved and job.state == 'queued' then
    append(begun, queued_key(job.model, job.priority, job.lane), job.id)
  else
    -- The first write frees something, see common.lua.
    leave_indexes(job)
    moved = true
  end
  append(running, running_key(job.model), lease_till, job.id)
end

local function claim(id)
  local job = look(id, wanted)
  if not job then return { 'unknown' } end
  local again = job.state == 'running' and job.lease == owner
  if job.state ~= 'queued' and not again then return { job.state } end
  if past_deadline(job) then
    finish(job, 'expired')
    return { 'expired' }
  end
  if job.image_host then return { 'waiting' } end
  local suspect, version, options, absent = unpack(job.more)
  if suspect and not alone then return { 'suspect' } end
  if job.same and not again then
    local result, run = same.answer(job.same)
    if result then
      same.finish(job, result, run)
      return { 'succeeded' }
    end
    if same.must_wait(job) then return { 'waiting' } end
  end
  if job.pauses and not again then
    local due = redis.call('ZSCORE', deferred_key(job.model), id)
    if due and tonumber(due) > now then return { 'waiting' } end
    if due then redis.call('ZREM', deferred_key(job.model), id) end
  end
  move(job)
  if job.same then same.begin(job) end
  local attempts = again and job.attempts or job.attempts + 1
  redis.call('HSET', job_key(id), 'state', 'running', 'lease', owner, 'started_ms', now_digits, 'attempts', digits(attempts))
  return {
    'claimed', version or '', options or '', attempts, job.pauses or '0',
    job.deadline and digits(job.deadline) or '', now_digits, absent or '',
  }
end

local replies, started = {}, {}
for i = 6, #ARGV do
  local reply = claim(ARGV[i])
  if reply[1] == 'claimed' then started[#started + 1] = ARGV[i] end
  replies[#replies + 1] = reply
end
call_each(begun, 'ZREM')
call_each(running, 'ZADD')
-- For the clients that watch their jobs.
if #started > 0 then redis.call('PUBLISH', prefix .. 'started', table.concat(started, ' ')) end
settle()
return replies
