-- count: count a request of a tenant, within a window that begins with its first one.
-- ARGV: prefix, retention, tenant, length of the window in ms
-- Returns {requests in this window with this one, ms until it is over, jobs that the tenant has open}

local key = prefix .. 'rate:' .. ARGV[3]
local requests = redis.call('INCR', key)
local left = redis.call('PTTL', key)
if left < 0 then
  redis.call('PEXPIRE', key, ARGV[4])
  left = tonumber(ARGV[4])
end
return { requests, left, tonumber(redis.call('HGET', tenants.key(ARGV[3]), 'jobs') or '0') }
