-- complete: write the outcomes of a batch.
-- ARGV: prefix, retention, lease owner, then per job: id, 'succeeded'|'failed'|'dead', result or error, run
--   where 'dead' is a failure whose cause is ours, so that the image stays for a while
-- Returns per job the state it is in now, or 'unknown'.
-- An answer counts while the job has not ended, whoever brings it; an error only from the lease's owner.
-- An answer that comes after the deadline is none.

local owner = ARGV[3]
local replies = {}
gathers = true
for i = 4, #ARGV, 4 do
  local job, outcome = look(ARGV[i]), ARGV[i + 1]
  local open = job and (job.state == 'running' or job.state == 'queued')
  local mine = job and job.state == 'running' and job.lease == owner
  if not job then
    replies[#replies + 1] = 'unknown'
  elseif open and (mine or outcome == 'succeeded') then
    local state = outcome == 'succeeded' and 'succeeded' or 'failed'
    if past_deadline(job) then
      state = 'expired'
      finish(job, state, nil, nil, ARGV[i + 3])
    elseif state == 'succeeded' then
      finish(job, state, 'result', ARGV[i + 2], ARGV[i + 3])
    else
      finish(job, state, 'error', ARGV[i + 2], ARGV[i + 3], outcome == 'dead')
    end
    replies[#replies + 1] = state
  else
    replies[#replies + 1] = job.state
  end
end
settle()
return replies
