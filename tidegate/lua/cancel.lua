-- cancel: end a job on its client's behalf, or because its deadline has passed.
-- ARGV: prefix, retention, 'cancel', or 'expire' to leave jobs alone whose time has not come, then ids
-- Returns per id: 'canceled' (by this call), 'expired' (its deadline had passed), 'finished' (it was over), 'unknown',
--   or 'early' (its time has not come).

local early = ARGV[3] == 'expire' and 'early'
local replies = {}
for i = 4, #ARGV do
  local job = look(ARGV[i])
  local reply
  if not job then
    reply = 'unknown'
  elseif job.state ~= 'queued' and job.state ~= 'running' then
    reply = 'finished'
  else
    reply = past_deadline(job) and 'expired' or early or 'canceled'
    if reply ~= 'early' then finish(job, reply) end
  end
  replies[#replies + 1] = reply
end
settle()
return replies
