-- Begin a new life of a hash that is of other settings, or of a generation before "generation".
-- Nothing is lent in it until the database has opened it; what was lent lies below its fence.
local generation = tonumber(ARGV[GIVEN + 1])

local whose, refusal = server()
if not whose then return refusal end
local known = redis.call('HMGET', key, 'protocol', 'fingerprint', 'generation')
if known[1] and known[1] ~= protocol then
  return {'protocol', known[1]}
end
local opened = known[2] == fingerprint and tonumber(known[3] or '') or -1
if opened ~= 0 and opened < generation then begin(whose, true) end
return {'ok'}
