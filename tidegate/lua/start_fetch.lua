-- start_fetch: begin to fetch the image of a job.
-- ARGV: prefix, retention, id, lease from `take`, lease ms of this attempt, max attempts, error for one lost at its last
-- Returns {} when there is nothing to do: the job is over, gone, or another worker's by now. Else {lease, url}
-- What an earlier attempt had brought is dropped.

local id, lease = ARGV[3], ARGV[4]
local job = look(id, { 'image_url', 'fetches' })
if not job or not job.image_host or not lines.held('fetches', job.image_host, id, lease) then return {} end
local url, fetches = job.more[1], tonumber(job.more[2] or '0')
if past_deadline(job) or fetches >= tonumber(ARGV[6]) then
  if past_deadline(job) then finish(job, 'expired') else finish(job, 'failed', 'error', ARGV[7]) end
  settle()
  return {}
end
redis.call('DEL', input_key(id))
weigh(job, 0, -job.bytes)
redis.call('HSET', job_key(id), 'bytes', '0', 'fetches', digits(fetches + 1))
return { lines.renew('fetches', job.image_host, id, tonumber(ARGV[5])), url }
