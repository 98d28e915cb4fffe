-- Begin a new life of a hash whose generation the database has given up.
local incarnation = ARGV[GIVEN + 1]

local reply = opened(false)
if reply then return reply end
if incarnation == state.incarnation then begin(state.whose, false) end
return {'ok'}
