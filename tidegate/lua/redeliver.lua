-- redeliver: send a webhook once more, whatever became of it; one that is being sent is left alone.
-- ARGV: prefix, retention, then ids
-- Returns per id the state it is in now ('pending'), or 'unknown'.

local replies = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local host = redis.call('HGET', outbox.key(id), 'host')
  if not host then
    replies[#replies + 1] = 'unknown'
  else
    if not redis.call('ZSCORE', lines.busy_key('outbox', host), id) then outbox.again(id, host) end
    replies[#replies + 1] = 'pending'
  end
end
lines.wake()
return replies
