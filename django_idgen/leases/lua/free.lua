-- Free a worker id by hand. The mark stays where it is: the holder may use its window up.
local reply = opened(false)
if reply then return reply end
local mark = mark_of(tonumber(ARGV[GIVEN + 1]))
if not mark or mark.token == '' then return {'lost', text(now_us)} end
mark.token = ''
redis.call('HSET', key, 'w:' .. ARGV[GIVEN + 1], packed(mark))
return {'ok'}
