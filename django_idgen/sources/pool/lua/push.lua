-- Add ranges to a tag: of each its start, next, end, delta, residue and count.
-- ARGV[4]: the life of the pool before the ids were fetched; one that was cleared since takes
-- nothing, as the tag may be paused. ARGV[5]: its life if it begins now.
local step, max_ids, max_ranges = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local life, fresh = ARGV[4], ARGV[5]
local GIVEN = 5

local incarnation, refusal = server()
if not incarnation then return refusal end
if read(KEYS[1], incarnation).life ~= life then return {'none'} end
local pool = opened(KEYS[1], incarnation, fresh)
local taken = 0

local function gcd(one, other)
  while other > 0 do one, other = other, one % other end
  return one
end

-- Whether the two may have an id in common. They never should: nothing is pushed twice.
local function meet(one, other)
  return one.start < other.next and other.start < one.next
    and (one.residue - other.residue) % gcd(one.delta, other.delta) == 0
end

local function meets_any(range)
  for _, other in ipairs(pool.ranges) do
    if meet(range, other) then return true end
  end
  return false
end

local function follows(one, other)
  return one.next == other.start and one.delta == other.delta and one.residue == other.residue
end

-- Put "range" in, as one with those that it follows or is followed by.
local function join(range)
  local others = {}
  for _, other in ipairs(pool.ranges) do
    if follows(other, range) then
      range.start, range.count = other.start, range.count + other.count
    elseif follows(range, other) then
      range.next, range.count = other.next, range.count + other.count
    else
      others[#others + 1] = other
    end
  end
  others[#others + 1] = range
  pool.ranges = others
end

for place = GIVEN + 1, #ARGV, 6 do
  local range = {start = ARGV[place], next = ARGV[place + 1], delta = tonumber(ARGV[place + 3]),
                 residue = tonumber(ARGV[place + 4]), count = tonumber(ARGV[place + 5])}
  local stop = ARGV[place + 2]
  if stop > pool.highest then pool.highest = stop end
  if pool.total + range.count <= max_ids and range.start >= pool.least
    and not meets_any(range) then
    pool.total, taken = pool.total + range.count, taken + range.count
    join(range)
  end
end

-- What is too much are the shortest: they are the least use.
table.sort(pool.ranges, function(one, other)
  if one.count ~= other.count then return one.count > other.count end
  return one.start < other.start
end)
local written = {'incarnation', incarnation, 'life', life == '' and fresh or life,
                 'highest', pool.highest, 'step', step}
for place, range in ipairs(pool.ranges) do
  if place > max_ranges then
    pool.total = pool.total - range.count
  else
    local value = packed(range)
    if pool.stored[range.start] ~= value then
      written[#written + 1], written[#written + 2] = range.start, value
    end
    pool.stored[range.start] = nil
  end
end
-- One command writes all of it, and first, so that a server out of memory changes nothing.
redis.call('HSET', pool.key, unpack(written))
for start in pairs(pool.stored) do redis.call('HDEL', pool.key, start) end
touch(pool.key)
return {'ok', text(taken), text(pool.dropped), text(pool.total)}
