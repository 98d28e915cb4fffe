-- Free a worker id by hand. The mark stays where it is: the holder may use its window up.
local worker, lease = ARGV[GIVEN + 1], ARGV[GIVEN + 2] -- the lease that is meant, or nothing
local reply = opened(false)
if reply then return reply end
local mark = mark_of(tonumber(worker))
if not mark or mark.token == '' then return {'lost', text(now_us)} end
if lease ~= '' and lease ~= name_of(mark.token) then return {'lost', text(now_us)} end
mark.token = ''
redis.call('HSET', key, 'w:' .. worker, packed(mark))
return {'ok'}
