-- The pace of a model: how many of its jobs are answered a second while others wait, which is what its workers can do.
-- While none waits, the ends only tell how many jobs came. Two sums that decay with the same time constant, the answers
-- and the time in which they came; nothing is added for the time before an answer that left nobody waiting.

-- An answer comes with those of its batch, and a pace varies: where many are taken in just before their deadlines, without
-- room for that every other one would come too late.
local CAUTION = 1.15
-- A pace out of less time is none.
local LEAST_MS = 500

local function read(model)
  local f = redis.call('HMGET', stats_key(model), 'pace_count', 'pace_ms', 'pace_at_ms', 'pace_behind')
  local since = f[3] and f[4] == '1' and math.max(0, now - tonumber(f[3])) or 0
  local decay = math.exp(-since / RATE_TAU_MS)
  return tonumber(f[1] or '0') * decay, tonumber(f[2] or '0') * decay + since, f[4] == '1'
end

-- So many of the model's jobs were answered now; `behind` tells whether more of them wait.
function pace.learn(model, count, behind)
  local answers, milliseconds, was_behind = read(model)
  if was_behind then answers = answers + count end
  redis.call('HSET', stats_key(model), 'pace_count', tostring(answers), 'pace_ms', tostring(milliseconds),
    'pace_at_ms', digits(now), 'pace_behind', behind and '1' or '0')
end

-- Jobs a second; nil while it is not known.
function pace.of(model)
  local answers, milliseconds = read(model)
  if milliseconds < LEAST_MS or answers <= 0 then return nil end
  return answers * 1000 / milliseconds
end

-- How many of a model's jobs go before one that has `mine` before it in its lane: lanes take turns, so of each other
-- lane as many and one.
function pace.before(model, lane, mine)
  local all = mine
  for other, load in pairs(tenants.loads(model)) do
    if other ~= lane then all = all + math.min(load, mine + 1) end
  end
  return all
end

-- When a job that comes now would be answered, in ms from now; nil while it is not known.
function pace.answer_in_ms(model, lane, priority)
  local rate = pace.of(model)
  if not rate then return nil end
  local mine = 0
  for _, each in ipairs(priorities) do
    mine = mine + redis.call('ZCARD', queued_key(model, each, lane))
    if each == priority then break end
  end
  local before = pace.before(model, lane, mine) + redis.call('ZCARD', running_key(model))
  return (before + 1) * 1000 / rate * CAUTION
end
