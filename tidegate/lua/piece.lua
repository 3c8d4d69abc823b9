-- piece: add some bytes to the image of a job that is being fetched.
-- ARGV: prefix, retention, id, lease from `start_fetch`, how many bytes came before, bytes
-- Returns 1, or 0 when the job is over or another worker's by now: then nothing is written.

local id, offset, piece = ARGV[3], tonumber(ARGV[5]), ARGV[6]
local f = redis.call('HMGET', job_key(id), 'image_host', 'model', 'tenant')
local host = f[1]
if not host or not lines.held('fetches', host, id, ARGV[4]) then return 0 end
-- Said again, because the reply was lost: it stands there already.
if redis.call('STRLEN', input_key(id)) ~= offset then return 1 end
redis.call('APPEND', input_key(id), piece)
redis.call('HINCRBY', job_key(id), 'bytes', #piece)
weigh({ model = f[2], tenant = f[3] or '' }, 0, #piece)
return 1
