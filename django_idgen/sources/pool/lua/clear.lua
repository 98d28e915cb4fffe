-- Throw away all that lies in the pool of the tags, and what is known of it. ARGV[1] is its life
-- from now on, ARGV[3] the lowest id that may be put in. If ARGV[2] is '1', 'highest' and 'least'
-- stay as they were.
local incarnation, refusal = server()
if not incarnation then return refusal end
local count = 0
for _, key in ipairs(KEYS) do
  local highest, least = ZERO, ARGV[3]
  if ARGV[2] == '1' then
    highest = redis.call('HGET', key, 'highest') or ZERO
    least = redis.call('HGET', key, 'least') or ZERO
  end
  count = count + redis.call('DEL', key)
  redis.call('HSET', key, 'incarnation', incarnation, 'life', ARGV[1], 'highest', highest,
             'least', least)
  touch(key)
end
return {'ok', text(count)}
