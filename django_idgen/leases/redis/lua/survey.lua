-- What is known of one worker id, or of a part of all that were lent, from a cursor on: a
-- lender must not wait until thousands are listed. Changes nothing, mends nothing.
local only, cursor, about = ARGV[GIVEN + 1], ARGV[GIVEN + 2], ARGV[GIVEN + 3]

local whose, refusal = server()
if not whose then return refusal end
local known = redis.call('HMGET', key, unpack(HEADER))
local difference = differing(known)
if difference then return difference end
-- Of another life, or of a hash that is not whole: no holder can renew, but they are listed.
local alive = is_whole(known) and known[4]:sub(1, #whose + 1) == whose .. '/'
state.generation, state.fence = tonumber(known[5] or '') or 0, tonumber(known[6] or '') or 0

local found = {'ok', text(now_us), '0'}

local function tell(worker, stored, note)
  local mark = unpacked(stored)
  if not mark then return end
  local lent, offset = '', ''
  if note and mark.token ~= '' then
    local token
    token, lent, offset = note:match('^(%x*):(%d*):(-?%d*)$')
    if token ~= mark.token then lent, offset = '', '' end
  end
  local holds = mark.token == '' and 'free' or (alive and is_current(mark)) and 'held' or 'void'
  for _, word in ipairs({worker, holds, text(mark.start), text(mark.till), text(mark.generation),
                         mark.seen, lent, offset, name_of(mark.token), mark.holder}) do
    found[#found + 1] = word
  end
end

if only ~= '' then
  local stored = redis.call('HGET', key, 'w:' .. only)
  if stored then tell(only, stored, redis.call('HGET', key, 'n:' .. only)) end
  return found
end

-- Those that are there all the while are told at least once; some twice.
local part = redis.call('HSCAN', key, cursor, 'MATCH', 'w:*', 'COUNT', about)
found[3] = part[1]
for place = 1, #part[2], 2 do
  local worker = part[2][place]:match('^w:(%d+)$')
  if worker then tell(worker, part[2][place + 1], redis.call('HGET', key, 'n:' .. worker)) end
end
return found
