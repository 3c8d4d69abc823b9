-- renew: keep the leases of what still runs.
-- ARGV: prefix, retention, lease ms, then per job: owner, id
-- Returns how many leases were still the owner's.

local lease_ms = tonumber(ARGV[3])
local kept = 0
for i = 4, #ARGV, 2 do
  local f = redis.call('HMGET', job_key(ARGV[i + 1]), 'state', 'lease', 'model')
  if f[1] == 'running' and f[2] == ARGV[i] then
    redis.call('ZREM', running_key(f[3]), ARGV[i + 1])
    redis.call('ZADD', running_key(f[3]), now + lease_ms, ARGV[i + 1])
    kept = kept + 1
  end
end
return kept
