-- The oldest notes of the history, up to so many, and the number of the last; 0 if there are
-- none. Changes nothing.
local key, most = KEYS[1], tonumber(ARGV[1])
local known = redis.call('HMGET', key, 'life', 'next', 'done')
if not known[1] then return {'ok', '', '0'} end
local last = tonumber(known[2]) or 0
local done = math.max(tonumber(known[3] or 0), last - MOST_NOTES)
local upto = math.min(last, done + most)
if upto <= done then return {'ok', known[1], '0'} end
local reply = {'ok', known[1], text(upto)}
for number = done + 1, upto do
  reply[#reply + 1] = redis.call('HGET', key, text(number)) or nil
end
return reply
