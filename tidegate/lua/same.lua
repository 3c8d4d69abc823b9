-- The result cache: submissions of the same tenant with the same image, model, version and options share one answer.
--   cache:{key}   the result and its run, a line each
--   same:{key}    set of the open jobs that ask for it
--   first:{key}   the one of them that was taken up last; while it runs, the others wait for its answer
-- `key` is made by the API: for how many seconds an answer stands, a colon, and a digest. A job without one takes no part,
-- and costs nothing here.

-- Most jobs that one answer ends in one script; the others find it when they are taken up.
local MOST = 500

function same.cache_key(key) return prefix .. 'cache:' .. key end
function same.members_key(key) return prefix .. 'same:' .. key end
local function first_key(key) return prefix .. 'first:' .. key end

-- Result and run, or nil.
function same.answer(key)
  local text = redis.call('GET', same.cache_key(key))
  if not text then return nil end
  return string.match(text, '^(.-)\n(.*)$')
end

function same.join(key, id)
  redis.call('SADD', same.members_key(key), id)
end

-- Whether another one is being answered now.
function same.must_wait(job)
  local first = redis.call('GET', first_key(job.same))
  return first and first ~= job.id and redis.call('HGET', job_key(first), 'state') == 'running'
end

-- This one is being answered from now on.
function same.begin(job)
  redis.call('SET', first_key(job.same), job.id)
end

-- A job with a key has ended, with this answer or with none.
function same.leave(job, result, run)
  redis.call('SREM', same.members_key(job.same), job.id)
  if redis.call('GET', first_key(job.same)) == job.id then redis.call('DEL', first_key(job.same)) end
  if not result or job.cached then return end
  redis.call('SET', same.cache_key(job.same), result .. '\n' .. run, 'EX', string.match(job.same, '^(%d+):'))
  for _, id in ipairs(redis.call('SPOP', same.members_key(job.same), MOST)) do
    local other = look(id)
    if other and (other.state == 'queued' or other.state == 'running') then same.finish(other, result, run) end
  end
end

-- End a job with an answer that was another's.
function same.finish(job, result, run)
  if past_deadline(job) then return finish(job, 'expired') end
  job.cached = true
  finish(job, 'succeeded', 'result', result, run)
end
