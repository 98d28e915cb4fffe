-- Stands before each script. KEYS[1] is the hash of the namespace:
--   protocol, installation, fingerprint   what its users agree on (L8)
--   incarnation                           the life of it: server, replication, a nonce
--   generation, fence, ceiling            what the database has lent to it; generation 0: not yet
--   fields                                how many there are, so that a deleted one shows
--   highest                               the end of the latest window: no holder came further
--   w:<worker id>                         token:start:until:generation:seen:holder
--   h:<host, or chosen label>             the worker ids that it had, the latest first
--   n:<worker id>                         token:lent:offset, of who was lent it by a version
--                                         that notes it: counts for a look at the map alone
-- All moments are ticks, but "seen" and "lent" (µs since 1970); "offset" is how far (µs) the
-- holder's clock was ahead. Whole numbers up to 2^53 are exact.
local key = KEYS[1]
local installation, fingerprint, protocol, nonce = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local epoch_us, tick_us = tonumber(ARGV[6]), tonumber(ARGV[7])
local max_ticks, window = tonumber(ARGV[8]), tonumber(ARGV[9])
local GIVEN = 9 -- the arguments of the script itself come after these
local HEADER = {'protocol', 'installation', 'fingerprint', 'incarnation',
                'generation', 'fence', 'ceiling', 'fields', 'highest'}

local function text(number)
  return string.format('%.0f', number)
end

local now_us = tonumber(ARGV[5])
if not now_us then
  local time = redis.call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
-- Rounded down, exactly: a quotient of two doubles may be rounded up to the next tick.
local rest = math.fmod(now_us - epoch_us, tick_us)
if rest < 0 then rest = rest + tick_us end
local now = (now_us - epoch_us - rest) / tick_us

local state = {}

-- Begin a new life of the hash, in which nothing is lent until the database has opened it.
local function begin(whose, wipe)
  if wipe then redis.call('DEL', key) end
  redis.call('HSETNX', key, 'highest', '0')
  local fields = wipe and #HEADER or redis.call('HLEN', key)
  local incarnation = whose .. '/' .. nonce
  redis.call('HSET', key, 'protocol', protocol, 'installation', installation,
             'fingerprint', fingerprint, 'incarnation', incarnation, 'generation', '0',
             'fence', '0', 'ceiling', '0', 'fields', text(fields))
  return {'open', text(now_us), text(now), incarnation}
end

-- What users of other settings are told; nothing if these are the ones of the hash.
local function differing(known)
  if known[1] and known[1] ~= protocol then
    return {'protocol', known[1]}
  end
  if known[2] and known[2] ~= installation then return {'mismatch', 'installation', known[2]} end
  if known[3] and known[3] ~= fingerprint then return {'mismatch', 'fingerprint', known[3]} end
end

local function is_whole(known)
  for place = 1, 9 do
    if not known[place] then return false end
    if place > 4 and not known[place]:match('^%d+$') then return false end
  end
  return redis.call('HLEN', key) == tonumber(known[8])
end

-- Read the header into "state"; a reply instead where nothing can be lent.
-- With "mending" a hash that is missing, broken or of another life is begun anew.
local function opened(mending)
  local whose, refusal = server()
  if not whose then return refusal end
  local known = redis.call('HMGET', key, unpack(HEADER))
  local difference = differing(known)
  if difference then return difference end
  local whole = is_whole(known)
  if not whole or known[4]:sub(1, #whose + 1) ~= whose .. '/' then
    if mending then return begin(whose, not whole) end
    return {'lost', text(now_us)}
  end
  state.whose, state.incarnation = whose, known[4]
  state.generation, state.fence = tonumber(known[5]), tonumber(known[6])
  state.ceiling, state.fields = tonumber(known[7]), tonumber(known[8])
  state.highest = tonumber(known[9])
  if not state.highest then
    state.highest, state.fields = state.ceiling, state.fields + 1
    redis.call('HSET', key, 'highest', known[7], 'fields', text(state.fields))
  end
  if state.generation == 0 and mending then
    return {'open', text(now_us), text(now), state.incarnation}
  end
end

-- A mark as it is stored; "nil" if that can't be read.
local function unpacked(stored)
  local token, start, till, generation, seen, holder =
    stored:match('^(%x*):(%d+):(%d+):(%d+):(%d+):(.*)$')
  if not token then return nil end
  return {token = token, start = tonumber(start), till = tonumber(till),
          generation = tonumber(generation), seen = seen, holder = holder}
end

-- A stored mark; "false" where there is none. One that can't be read breaks the hash.
local function mark_of(worker)
  local stored = redis.call('HGET', key, 'w:' .. text(worker))
  if not stored then return false end
  local mark = unpacked(stored)
  if not mark then
    state.broken = true
    return false
  end
  return mark
end

-- What a lease is called by those who only look at it: never the token, which lets one renew.
local function name_of(token)
  return token == '' and '' or redis.sha1hex(token):sub(1, 16)
end

local function packed(mark)
  return table.concat({mark.token, text(mark.start), text(mark.till),
                       text(mark.generation), mark.seen, mark.holder}, ':')
end

-- The field that notes when a lease was lent and how its holder's clock stands, which says
-- "wall" (µs) or nothing; and by how many fields there are more then.
local function note_of(worker, mark, wall, lent)
  local field = 'n:' .. text(worker)
  local known = redis.call('HGET', key, field)
  if not lent then
    local token, since = (known or ''):match('^(%x*):(%d*):')
    lent = token == mark.token and since or ''
  end
  local offset = wall ~= '' and text(tonumber(wall) - now_us) or ''
  return field, mark.token .. ':' .. lent .. ':' .. offset, known and 0 or 1
end

-- A lease of this generation; what began below the fence is void, whatever it says.
local function is_current(mark)
  return mark.token ~= '' and mark.generation == state.generation and mark.start >= state.fence
end

local function top()
  return math.min(state.ceiling, max_ticks)
end

-- The end of the latest window, once there is one until "till".
local function highest(till)
  return text(math.max(state.highest, till))
end

local function standing()
  return text(state.generation), text(state.fence), text(state.ceiling), state.incarnation
end

-- The database has to raise the ceiling before this can be granted in full.
local function too_low(wanted)
  return {'raise', text(now_us), text(now), text(wanted), standing()}
end

local function broken()
  return begin(state.whose, true)
end
