-- L2 for all holders that were seen of late, without counting as seeing them.
local since, short = now_us - tonumber(ARGV[GIVEN + 1]), ARGV[GIVEN + 2] == '1'

local reply = opened(true)
if reply then return reply end
local all = redis.call('HKEYS', key)
local due = {}
for _, field in ipairs(all) do
  local worker = tonumber(field:match('^w:(%d+)$'))
  local mark = worker and mark_of(worker)
  if mark and is_current(mark) and now < mark.till and tonumber(mark.seen) >= since then
    due[#due + 1] = {field, mark}
  end
end
if state.broken then return broken() end

local function wanted(mark)
  return math.min(math.max(now, mark.start) + window, max_ticks)
end

local latest = now
for _, each in ipairs(due) do
  if math.max(each[2].till, top()) < wanted(each[2]) then latest = math.max(latest, each[2].start) end
end
for _, each in ipairs(due) do
  if math.max(each[2].till, top()) < wanted(each[2]) and not short then return too_low(latest) end
end
for _, each in ipairs(due) do
  local mark = each[2]
  mark.till = math.max(mark.till, math.min(wanted(mark), top()))
  redis.call('HSET', key, each[1], packed(mark))
end
return {'ok', text(now_us), text(now), text(#due), '0', '0', standing()}
