-- Enter what the database has lent to this life of the hash. Makes no hash.
local generation, fence = ARGV[GIVEN + 1], tonumber(ARGV[GIVEN + 2])
local ceiling, incarnation = tonumber(ARGV[GIVEN + 3]), ARGV[GIVEN + 4]

local reply = opened(false)
if reply then return reply end
if incarnation ~= state.incarnation then return {'lost', text(now_us)} end
-- Fences only rise: one that is not past ours is of a generation before ours.
if state.generation == 0 or fence > state.fence then
  redis.call('HSET', key, 'generation', generation, 'fence', text(fence), 'ceiling', text(ceiling))
elseif fence == state.fence and tonumber(generation) == state.generation then
  redis.call('HSET', key, 'ceiling', text(math.max(ceiling, state.ceiling)))
else
  return {'lost', text(now_us)}
end
return {'ok'}
