-- Of each tag how many ids there are, how many ranges, the end of the highest that ever was,
-- how many ids every process can use that has asked so far, its life, and
-- who took something out last. Changes nothing.
local incarnation, refusal = server()
if not incarnation then return refusal end
local reply = {'ok'}
for _, key in ipairs(KEYS) do
  local pool = read(key, incarnation)
  if pool.void then pool.total, pool.ranges = 0, {} end
  local ready = 0
  for _, range in ipairs(pool.ranges) do
    local _, below = usable(range, pool.floor)
    ready = ready + range.count - below
  end
  reply[#reply + 1] = text(pool.total)
  reply[#reply + 1] = text(#pool.ranges)
  reply[#reply + 1] = pool.highest
  reply[#reply + 1] = text(ready)
  reply[#reply + 1] = pool.life
  reply[#reply + 1] = pool.header.taken or ''
end
return reply
