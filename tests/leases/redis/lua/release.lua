-- L3: give a worker id back. Nothing is mended here: what isn't found isn't held.
local worker, token = tonumber(ARGV[GIVEN + 1]), ARGV[GIVEN + 2]
local generation, last = tonumber(ARGV[GIVEN + 3]), tonumber(ARGV[GIVEN + 4])

local reply = opened(false)
if reply then return reply end
local mark = mark_of(worker)
if not mark or not is_current(mark) or mark.token ~= token or generation ~= state.generation then
  return {'lost', text(now_us)}
end
mark.token, mark.seen = '', text(now_us)
mark.till = math.max(mark.start, last + 1)
redis.call('HSET', key, 'w:' .. text(worker), packed(mark))
return {'ok'}
