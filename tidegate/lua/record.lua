-- record: write what became of an attempt to deliver a webhook.
-- ARGV: prefix, retention, id, lease from `start_delivery`, the delivery's state now (`pending`: to be tried again), delay ms,
--   'works'|'fails' (the host), ms that the host asks to be left alone, status or '', what it was in a few words,
--   'gone' when the URL is not to be called again, or ''
-- Returns the state it is in now, or 'unknown'.
-- A delivery counts, whoever brings the word of it; a failure only from the lease's owner.

local id, lease, outcome = ARGV[3], ARGV[4], ARGV[5]
local f = redis.call('HMGET', outbox.key(id), 'host', 'state', 'url', 'client', 'forced')
local host, state = f[1], f[2]
if not host then return 'unknown' end
if state ~= 'pending' then return state end
if outcome ~= 'delivered' and not lines.held('outbox', host, id, lease) then return state end
lines.free('outbox', host, id, ARGV[7] == 'works', tonumber(ARGV[8]))
redis.call('HSET', outbox.key(id), 'status', ARGV[9], 'note', ARGV[10])
if outcome == 'pending' then
  local due = now + tonumber(ARGV[6])
  redis.call('HSET', outbox.key(id), 'due_ms', digits(due))
  lines.add('outbox', host, id, due)
else
  outbox.close(id, outcome)
end
if ARGV[11] == 'gone' then outbox.mark_gone(f[4], f[3]) end
if outcome == 'delivered' and f[5] then outbox.unmark_gone(f[4], f[3]) end
lines.wake()
return outcome
