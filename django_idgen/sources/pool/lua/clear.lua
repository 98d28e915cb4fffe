-- Throw away all that lies in the pool of the tags, and what is known of it; one that is shut
-- stays so.
local count = 0
for _, key in ipairs(KEYS) do
  local shut = redis.call('HGET', key, 'shut')
  count = count + redis.call('DEL', key)
  if shut then
    redis.call('HSET', key, 'shut', shut)
    touch(key)
  end
end
return {'ok', text(count)}
