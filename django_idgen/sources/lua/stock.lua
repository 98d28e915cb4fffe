-- How many ids each of the tags has, how many ranges, and the end of its highest. Changes nothing.
local incarnation, refusal = server()
if not incarnation then return refusal end
local reply = {'ok'}
for _, key in ipairs(KEYS) do
  local pool = read(key, incarnation)
  reply[#reply + 1] = text(pool.void and 0 or pool.total)
  reply[#reply + 1] = text(pool.void and 0 or #pool.ranges)
  reply[#reply + 1] = pool.highest
end
return reply
