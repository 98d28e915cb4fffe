-- Stands before every script that has to know which server runs it.
local function asked(section)
  local reply = redis.pcall('INFO', section)
  if type(reply) == 'table' then return nil, {'denied', reply.err} end
  return reply
end

-- Which server this is, in which life of its data; or a reply that says why it can't lend.
local function server()
  local about, refusal = asked('server')
  if not about then return nil, refusal end
  local replication, refused = asked('replication')
  if not replication then return nil, refused end
  local run, data = about:match('run_id:(%w+)'), replication:match('master_replid:(%w+)')
  if not run or not data then return nil, {'hidden'} end
  if replication:match('role:(%w+)') ~= 'master' then return nil, {'replica'} end
  return run .. '/' .. data
end
