-- L2 for the holders that were seen of late, without counting as seeing them: a part of all, from
-- a cursor on, since nothing is lent meanwhile. Each part stands alone: what is lost or
-- begun anew between two of them is noticed as ever, and what a part did is done.
local since, short = now_us - tonumber(ARGV[GIVEN + 1]), ARGV[GIVEN + 2] == '1'
local cursor, about = ARGV[GIVEN + 3], ARGV[GIVEN + 4]
local AT_ONCE = 500 -- marks: Lua passes on so many words, and not many more

local reply = opened(true)
if reply then return reply end
-- Those that are there all the while are met at least once; some twice, which changes nothing.
local part = redis.call('HSCAN', key, cursor, 'MATCH', 'w:*', 'COUNT', about)
local due = {}
for place = 1, #part[2], 2 do
  local field = part[2][place]
  if field:match('^w:%d+$') then
    local mark = unpacked(part[2][place + 1])
    if not mark then return broken() end
    if is_current(mark) and now < mark.till and tonumber(mark.seen) >= since then
      due[#due + 1] = {field, mark}
    end
  end
end

local function wanted(mark)
  return math.min(math.max(now, mark.start) + window, max_ticks)
end

local latest, missing = now, false
for _, each in ipairs(due) do
  if math.max(each[2].till, top()) < wanted(each[2]) then
    latest, missing = math.max(latest, each[2].start), true
  end
end
if missing and not short then return too_low(latest) end
for first = 1, #due, AT_ONCE do
  local written = {}
  for place = first, math.min(first + AT_ONCE - 1, #due) do
    local field, mark = due[place][1], due[place][2]
    mark.till = math.max(mark.till, math.min(wanted(mark), top()))
    state.highest = math.max(state.highest, mark.till)
    written[#written + 1], written[#written + 2] = field, packed(mark)
  end
  redis.call('HSET', key, 'highest', text(state.highest), unpack(written))
end
return {'ok', text(now_us), text(now), text(#due), '0', '0', part[1], standing()}
