-- cancel: end a job on its client's behalf.
-- ARGV: prefix, ttl, then ids
-- Returns per id: 'canceled' (by this call), 'expired' (its deadline had passed), 'finished' (it was over), 'unknown'.

local replies = {}
for i = 3, #ARGV do
  local job = look(ARGV[i])
  local reply
  if not job then
    reply = 'unknown'
  elseif job.state ~= 'queued' and job.state ~= 'running' then
    reply = 'finished'
  else
    reply = past_deadline(job) and 'expired' or 'canceled'
    finish(job, reply)
  end
  replies[#replies + 1] = reply
end
settle()
return replies
