-- lose: the process that ran these jobs is dead.
-- ARGV: prefix, retention, lease owner, max attempts, error for those at their last attempt, then ids
-- Returns per job: {'queued', id, model, priority, issued_ms, deadline_ms or '', lane} (it wants a ticket now), or {its state}, or {'unknown'}.

local owner, max_attempts, error = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local replies = {}
for i = 6, #ARGV do
  local job = look(ARGV[i])
  local reply
  if not job then
    reply = { 'unknown' }
  elseif job.state == 'running' and job.lease == owner then
    local state = lose(job, true, max_attempts, error)
    reply = state == 'queued' and { 'queued', unpack(ticket(job)) } or { state }
  else
    reply = { job.state }
  end
  replies[#replies + 1] = reply
end
settle()
return replies
