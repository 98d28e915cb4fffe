-- Take the word of each tag away that it was shut with; one that was shut anew stays so.
local incarnation, refusal = server()
if not incarnation then return refusal end
for place, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'shut') == ARGV[place] then redis.call('HDEL', key, 'shut') end
end
return {'ok'}
