-- Take the lowest ids of a tag that a process may have.
local floor = ARGV[1]
local holder, at, fresh = ARGV[5], ARGV[6], ARGV[7]
local times, at_least, longest = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local incarnation, refusal = server()
if not incarnation then return refusal end
local pool = opened(KEYS[1], incarnation, fresh)
local step = pool.step
local wanted = math.max(at_least, math.min(step * times, math.max(step, longest)))
-- Crumbs are for those who need few: a busy process would come back at once.
local least = times > 1 and math.max(at_least, step) or at_least

-- What is below the floor of this process is for newcomers only, from now on.
local function asked_above(id)
  if id > pool.floor then redis.pcall('HSET', pool.key, 'floor', id) end
end

local function take(range, from, below)
  local count = math.min(wanted, range.count - below)
  local kept = {}
  redis.call('HDEL', pool.key, range.start)
  if below > 0 then
    kept[1] = range.start
    kept[2] = packed({next = from, delta = range.delta, residue = range.residue, count = below})
  end
  local left = range.count - below - count
  if left > 0 then
    kept[#kept + 1] = plus(from, count * range.delta)
    kept[#kept + 1] = packed({next = range.next, delta = range.delta, residue = range.residue,
                              count = left})
  end
  kept[#kept + 1] = 'taken'
  kept[#kept + 1] = table.concat({at, text(count), holder}, ' ')
  redis.call('HSET', pool.key, unpack(kept))
  asked_above(plus(from, (count - 1) * range.delta + 1))
  touch(pool.key)
  return {'ok', pool.highest, text(pool.dropped), from, text(count), text(range.delta), text(step),
          pool.life}
end

for _, range in ipairs(pool.ranges) do
  local from, below = usable(range, floor)
  if from and range.count - below >= least then return take(range, from, below) end
end
if pool.life ~= '' then asked_above(floor) end
return {'none', pool.highest, text(pool.dropped), pool.life}
