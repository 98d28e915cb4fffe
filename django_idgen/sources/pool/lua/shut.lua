-- Have nothing be taken out of the pool of the tags; ARGV[1] is a word that nobody else has.
local incarnation, refusal = server()
if not incarnation then return refusal end
for _, key in ipairs(KEYS) do
  redis.call('HSET', key, 'shut', ARGV[1])
  touch(key)
end
return {'ok'}
