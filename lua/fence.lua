-- fence: the era fence. Stands in front of every script that sells, restores
-- or gives back; the Go side puts two lines before it:
--   local ERA = '...'     the era whose scripts these are
--   local REPLID = '...'  master_replid of the server the era was minted on,
--                         '' where the server reports none (miniredis)
--
-- moved() is true when this server is not the master, in the role history the
-- era was minted in: a demoted and re-promoted master keeps its script cache,
-- but every promotion gives it another master_replid. Two more events change the
-- id of a master that lost nothing, and cost a restore: its first replica, and
-- repl-backlog-ttl seconds (an hour by default) without any.
--
-- distrust(meta, buyers, grants, applied) returns nil and the fields of meta
-- when the state is trusted, or the reason why it is not:
--   no_state   meta has no era: flushed, evicted, closed, or never loaded
--   other_era  restored in another era than this script's
--   moved      see moved()
--   damaged    a key's size is not the one recorded in meta
-- The field ends is when the state leaves Redis (Unix ms), nil for never: a key that
-- a script makes has to expire with the others.
local function moved()
  if REPLID == '' then return false end
  local info = redis.call('INFO', 'replication')
  return not (string.find(info, 'role:master', 1, true) and string.find(info, 'master_replid:' .. REPLID, 1, true))
end

local function distrust(meta, buyers, grants, applied)
  local m = redis.call('HMGET', meta, 'era', 'gen', 'fence', 'buyers', 'grants', 'applied', 'ends')
  if not m[1] then return 'no_state' end
  if m[1] ~= ERA then return 'other_era' end
  if moved() then return 'moved' end
  if redis.call('HLEN', buyers) ~= tonumber(m[4]) or redis.call('HLEN', grants) ~= tonumber(m[5])
    or redis.call('HLEN', applied) ~= tonumber(m[6]) then
    return 'damaged'
  end
  return nil, {
    gen = m[2], fence = m[3], buyers = tonumber(m[4]), grants = tonumber(m[5]), applied = tonumber(m[6]),
    ends = m[7] or nil,
  }
end
