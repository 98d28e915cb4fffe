-- L2: move the end of a held window up.
local worker, token = tonumber(ARGV[GIVEN + 1]), ARGV[GIVEN + 2]
local start, generation = tonumber(ARGV[GIVEN + 3]), tonumber(ARGV[GIVEN + 4])
local last, short = tonumber(ARGV[GIVEN + 5]), ARGV[GIVEN + 6] == '1'

local reply = opened(true)
if reply then return reply end
local mark = mark_of(worker)
if state.broken then return broken() end
if not mark or not is_current(mark) or mark.token ~= token or mark.start ~= start
    or generation ~= state.generation then
  return {'lost', text(now_us)}
end
local latest = math.max(now, last)
local wanted = math.min(latest + window, max_ticks)
local till = math.max(mark.till, math.min(wanted, top()))
-- Cut short it must still be of use: a later end than before, and past the latest tick.
local useful = short and till > mark.till and till > latest
if till < wanted and not useful then return too_low(latest) end
mark.till, mark.seen = till, text(now_us)
redis.call('HSET', key, 'w:' .. text(worker), packed(mark))
return {'ok', text(now_us), text(now), text(worker), text(start), text(till), standing()}
