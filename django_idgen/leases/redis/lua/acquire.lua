-- L1: lend a free worker id.
local first, past = tonumber(ARGV[GIVEN + 1]), tonumber(ARGV[GIVEN + 2])
local holder, token = ARGV[GIVEN + 3], ARGV[GIVEN + 4]
local not_before, avoid = tonumber(ARGV[GIVEN + 5]), tonumber(ARGV[GIVEN + 6])
local short, waiting = ARGV[GIVEN + 7] == '1', ARGV[GIVEN + 8] == '1'
local preferred, scan_from = tonumber(ARGV[GIVEN + 9]), tonumber(ARGV[GIVEN + 10])
local wall, lead, skew = ARGV[GIVEN + 11], tonumber(ARGV[GIVEN + 12]), tonumber(ARGV[GIVEN + 13])
local TRIES = GIVEN + 14 -- and from there on, random worker ids

local reply = opened(true)
if reply then return reply end
if now < 0 then return {'epoch', text(-now)} end
if waiting and state.fence > now then return {'wait', text(now_us), text(state.fence - now)} end

local latest = math.max(now + lead, state.fence, state.highest)
if not_before > latest then return {'ahead', text(not_before), text(latest)} end

-- Whether a worker id may be lent, and whether its window would begin as soon as any.
local soon = math.max(now, state.fence, not_before) + skew
local function look(worker)
  local mark = mark_of(worker)
  if not mark then return true, true end
  return not is_current(mark) or now >= mark.till, mark.till <= soon
end

local later -- the first that is free, but begins later
local function may_have(worker)
  if worker < first or worker >= past or worker == avoid then return false end
  local free, at_once = look(worker)
  if free and not at_once then later = later or worker end
  return free and at_once
end

-- core/lease.py: a host's processes are one identity, whatever their ids and names.
local function identity_of(label)
  return label:sub(1, 6) ~= 'cosid ' and label:match('^(.+):%d+ [^:"]+$') or label
end

local function held_last()
  if may_have(preferred) then return preferred end
  local workers = holder ~= '' and redis.call('HGET', key, 'h:' .. identity_of(holder)) or ''
  for worker in workers:gmatch('%d+') do
    if may_have(tonumber(worker)) then return tonumber(worker) end
  end
end

local function one_of(candidate, count)
  for number = 0, count - 1 do
    local worker = candidate(number)
    if may_have(worker) then return worker end
  end
end

local function at_random(number)
  return tonumber(ARGV[TRIES + number])
end

local function in_turn(number)
  return first + (scan_from + number) % (past - first)
end

local worker = held_last() or one_of(at_random, #ARGV - TRIES + 1)
               or one_of(in_turn, past - first) or later
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

local who = identity_of(holder)
local mark = {token = token, start = start, till = till, generation = state.generation,
              seen = text(now_us), holder = holder}
local written = {'w:' .. text(worker), packed(mark)}
local noted, note, more = note_of(worker, mark, wall, text(now_us))
written[#written + 1], written[#written + 2] = noted, note
local fields, emptied = state.fields + more, nil
if not old then fields = fields + 1 end
if holder ~= '' then
  local list, known = list_of(who, true)
  written[#written + 1], written[#written + 2] = 'h:' .. who, list
  if not known then fields = fields + 1 end
end
local before = old and identity_of(old.holder) or ''
if before ~= '' and before ~= who then
  local list, known = list_of(before, false)
  if known and list == '' then
    emptied, fields = 'h:' .. before, fields - 1
  elseif known then
    written[#written + 1], written[#written + 2] = 'h:' .. before, list
  end
end
-- One command writes all of it, so that a server out of memory writes none of it.
redis.call('HSET', key, 'fields', text(fields), 'highest', highest(till), unpack(written))
if emptied then redis.call('HDEL', key, emptied) end
return {'ok', text(now_us), text(now), text(worker), text(start), text(till), standing()}
