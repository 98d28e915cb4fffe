-- Stands before each script. A key is the hash of one tag:
--   incarnation      the life of the server that all ranges here were pushed in
--   step             the step of the tag's row, when it was last heard of
--   highest          the end of the highest range that was ever here
--   least            no id below it may be put in: the tag was skipped, and the pool cleared
--   floor            the highest that a process asked above: some have no use for what is lower
--   life             a word that is new whenever the pool begins, or is cleared: what is put in
--                    has to name the one that stood here before the ids were fetched
--   taken            who took something out last: microseconds since 1970, ids, holder
--   <19 digits>      a range: next:delta:residue:count, where "next" follows its last id
-- Ids have up to 19 digits, and Lua counts in doubles, which hold 15: an id is a text of
-- 19 digits here, that is compared as a text, and counted on in two halves.
local ZERO = string.rep('0', 19)
local LOW = 1000000000
local KEPT_MS = 30 * 24 * 3600 * 1000 -- a pool that was not used for so long is of no use

local function text(number)
  return string.format('%.0f', number)
end

local function halves(id)
  return tonumber(id:sub(1, 10)), tonumber(id:sub(11))
end

-- The id that lies "more" above; exact up to 2^53.
local function plus(id, more)
  local high, low = halves(id)
  local sum = low + more
  local rest = math.fmod(sum, LOW)
  return string.format('%010.0f%09.0f', high + (sum - rest) / LOW, rest)
end

-- How far "id" lies above "base", which is no higher; exact up to 2^53.
local function above(base, id)
  local high, low = halves(id)
  local base_high, base_low = halves(base)
  return (high - base_high) * LOW + low - base_low
end

local function by_start(one, other)
  return one.start < other.start
end

local function range_of(start, value)
  if #start ~= 19 or start:find('%D') then return end
  local next_id, delta, residue, count = value:match('^(%d+):(%d+):(%d+):(%d+)$')
  if not next_id or #next_id ~= 19 then return end
  return {start = start, next = next_id, delta = tonumber(delta), residue = tonumber(residue),
          count = tonumber(count)}
end

local function packed(range)
  return table.concat({range.next, text(range.delta), text(range.residue), text(range.count)}, ':')
end

-- What lies under "key", the lowest range first; "void" of another life of the server. It has no
-- life then, nor before it begins.
local function read(key, incarnation)
  local pool = {key = key, ranges = {}, stored = {}, total = 0, header = {}}
  local fields = redis.call('HGETALL', key)
  for place = 1, #fields, 2 do
    local name, value = fields[place], fields[place + 1]
    local range = range_of(name, value)
    if range then
      pool.ranges[#pool.ranges + 1] = range
      pool.stored[name] = value
      pool.total = pool.total + range.count
    else
      pool.header[name] = value
    end
  end
  table.sort(pool.ranges, by_start)
  pool.step = tonumber(pool.header.step) or 0
  pool.highest = pool.header.highest or ZERO
  pool.floor = pool.header.floor or ZERO
  pool.least = pool.header.least or ZERO
  pool.void = #fields > 0 and pool.header.incarnation ~= incarnation
  pool.life = not pool.void and pool.header.life or ''
  return pool
end

-- As "read", but what is void is thrown away: another server, or this one before it was
-- restarted, may have handed it out. The pool begins anew, with the life "fresh".
local function opened(key, incarnation, fresh)
  local pool = read(key, incarnation)
  pool.incarnation, pool.dropped = incarnation, 0
  if pool.void then
    pool.dropped, pool.total, pool.ranges, pool.stored = pool.total, 0, {}, {}
    redis.call('DEL', key)
    redis.call('HSET', key, 'incarnation', incarnation, 'life', fresh, 'highest', pool.highest,
               'step', text(pool.step), 'floor', pool.floor, 'least', pool.least)
    pool.life = fresh
  end
  return pool
end

-- The first id of a range at or above the floor, and how many lie below that; no id if all do.
local function usable(range, floor)
  if range.start >= floor then return range.start, 0 end
  if range.next <= floor then return nil, range.count end
  local distance = above(range.start, floor)
  local rest = math.fmod(distance, range.delta)
  local below = (distance - rest) / range.delta + (rest > 0 and 1 or 0)
  return plus(range.start, below * range.delta), below
end

-- Kept for a while; of no matter where that is not allowed.
local function touch(key)
  redis.pcall('PEXPIRE', key, KEPT_MS)
end
