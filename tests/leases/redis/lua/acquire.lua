-- L1: lend a free worker id.
local first, past = tonumber(ARGV[GIVEN + 1]), tonumber(ARGV[GIVEN + 2])
local holder, token = ARGV[GIVEN + 3], ARGV[GIVEN + 4]
local not_before, avoid = tonumber(ARGV[GIVEN + 5]), tonumber(ARGV[GIVEN + 6])
local short, waiting = ARGV[GIVEN + 7] == '1', ARGV[GIVEN + 8] == '1'
local preferred, scan_from = tonumber(ARGV[GIVEN + 9]), tonumber(ARGV[GIVEN + 10])
local TRIES = GIVEN + 11 -- and from there on, random worker ids

local reply = opened(true)
if reply then return reply end
if now < 0 then return {'epoch', text(-now)} end
if waiting and state.fence > now then return {'wait', text(now_us), text(state.fence - now)} end

-- Whether a worker id may be lent, and whether its window would begin at once.
local function look(worker)
  local mark = mark_of(worker)
  if not mark then return true, true end
  return not is_current(mark) or now >= mark.till, mark.till <= now
end

local function may_have(worker)
  return worker >= first and worker < past and worker ~= avoid and look(worker)
end

local function held_last()
  if may_have(preferred) then return preferred end
  local workers = holder ~= '' and redis.call('HGET', key, 'h:' .. holder) or ''
  for worker in workers:gmatch('%d+') do
    if may_have(tonumber(worker)) then return tonumber(worker) end
  end
end

-- The first that is free and would begin at once, else the first that is free.
local function best(candidate, count)
  local later
  for number = 0, count - 1 do
    local worker = candidate(number)
    if worker ~= avoid then
      local free, at_once = look(worker)
      if free and at_once then return worker end
      if free then later = later or worker end
    end
  end
  return later
end

local function at_random(number)
  return tonumber(ARGV[TRIES + number])
end

local function in_turn(number)
  return first + (scan_from + number) % (past - first)
end

local worker = held_last() or best(at_random, #ARGV - TRIES + 1) or best(in_turn, past - first)
if not worker then
  if state.broken then return broken() end
  return {'none'}
end
local old = mark_of(worker)
if state.broken then return broken() end

local start = math.max(now, old and old.till or 0, state.fence, not_before)
if start >= max_ticks then return {'exhausted', text(start)} end
local wanted = math.min(start + window, max_ticks)
local till = math.min(wanted, top())
if till <= start or (till < wanted and not short) then return too_low(start) end

-- The list of "whose" with "worker" taken out, and put in front if "added".
local function list_of(whose, added)
  local list = added and {text(worker)} or {}
  local known = redis.call('HGET', key, 'h:' .. whose)
  for each in (known or ''):gmatch('%d+') do
    if each ~= text(worker) and #list < 16 then list[#list + 1] = each end
  end
  return table.concat(list, ','), known
end

local mark = {token = token, start = start, till = till, generation = state.generation,
              seen = text(now_us), holder = holder}
local written = {'w:' .. text(worker), packed(mark)}
local fields, emptied = state.fields, nil
if not old then fields = fields + 1 end
if holder ~= '' then
  local list, known = list_of(holder, true)
  written[#written + 1], written[#written + 2] = 'h:' .. holder, list
  if not known then fields = fields + 1 end
end
if old and old.holder ~= '' and old.holder ~= holder then
  local list, known = list_of(old.holder, false)
  if known and list == '' then
    emptied, fields = 'h:' .. old.holder, fields - 1
  elseif known then
    written[#written + 1], written[#written + 2] = 'h:' .. old.holder, list
  end
end
-- One command writes all of it, so that a server out of memory writes none of it.
redis.call('HSET', key, 'fields', text(fields), unpack(written))
if emptied then redis.call('HDEL', key, emptied) end
return {'ok', text(now_us), text(now), text(worker), text(start), text(till), standing()}
