-- place: where waiting jobs stand. Changes nothing.
-- ARGV: prefix, retention, then ids
-- Returns per id {how many jobs go before it, ms until it is likely to start or ''}, or {} when it is in no queue

local function place(id)
  local job = look(id)
  local rank = job and job.state == 'queued' and redis.call('ZRANK', queued_key(job.model, job.priority, job.lane), id)
  if not rank then return {} end
  local mine = rank
  for _, priority in ipairs(priorities) do
    if priority == job.priority then break end
    mine = mine + redis.call('ZCARD', queued_key(job.model, priority, job.lane))
  end
  local before, rate = pace.before(job.model, job.lane, mine), pace.of(job.model)
  return { before, rate and digits(before * 1000 / rate) or '' }
end

local replies = {}
for i = 3, #ARGV do replies[#replies + 1] = place(ARGV[i]) end
return replies
