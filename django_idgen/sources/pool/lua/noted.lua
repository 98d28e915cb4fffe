-- Strike out the notes up to ARGV[2], if this is still the list of that life (ARGV[1]).
local key, upto = KEYS[1], tonumber(ARGV[2])
if redis.call('HGET', key, 'life') ~= ARGV[1] then return {'ok'} end
local done = tonumber(redis.call('HGET', key, 'done') or 0)
for number = done + 1, upto do redis.call('HDEL', key, text(number)) end
redis.call('HSET', key, 'done', text(math.max(done, upto)))
return {'ok'}
