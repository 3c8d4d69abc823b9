-- reissue: new tickets for jobs that wait, whose own were used up in vain.
-- ARGV: prefix, retention, then ids
-- Returns {id, model, priority, issued_ms, deadline_ms or '', lane} for each that wants a ticket now; no others.

local tickets = {}
for i = 3, #ARGV do
  local job = look(ARGV[i])
  if job and job.state == 'queued' then
    local key = queued_key(job.model, job.priority, job.lane)
    if redis.call('ZREM', key, job.id) == 1 then
      redis.call('ZADD', key, now, job.id)
      tickets[#tickets + 1] = ticket(job)
    end
  end
end
return tickets
