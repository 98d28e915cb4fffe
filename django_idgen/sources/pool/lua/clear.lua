-- Throw away all that lies in the pool of the tags, and what is known of it, but for the end of
-- the highest range if ARGV[2] is '1'. ARGV[1] is its life from now on. ARGV[3]: no id below it
-- gets in again.
local incarnation, refusal = server()
if not incarnation then return refusal end
local count = 0
for _, key in ipairs(KEYS) do
  local highest = ARGV[2] == '1' and redis.call('HGET', key, 'highest') or ZERO
  local least = redis.call('HGET', key, 'least') or ZERO
  if ARGV[3] > least then least = ARGV[3] end
  count = count + redis.call('DEL', key)
  redis.call('HSET', key, 'incarnation', incarnation, 'life', ARGV[1], 'highest', highest,
             'least', least)
  touch(key)
end
return {'ok', text(count)}
