-- Throw away all that lies in the pool of the tags, and what is known of it.
local count = 0
for _, key in ipairs(KEYS) do count = count + redis.call('DEL', key) end
return {'ok', text(count)}
