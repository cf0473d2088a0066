-- release: gives units back to one sale, once per giveback id.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:grants
-- KEYS[4] doorbuster:{SALE}:applied
-- KEYS[5..] doorbuster:{SALE}:stock:SKU, one per line
-- then doorbuster:{SALE}:used:LIMIT:PERIOD, one per counter it takes units off
--
-- ARGV[1] giveback id
-- ARGV[2] the user whose units come back, '' when nobody's do
-- ARGV[3] number of lines
-- ARGV[4..] units per line
-- then per counter two values: its subject, units
--
-- Returns {'distrusted', REASON} (see fence.lua) and changes nothing, or
--   {'applied'}  the units are back
--   {'known'}    this giveback was applied before; nothing changed
local meta, buyers, grants, applied = unpack(KEYS, 1, 4)
local id, user, lines = ARGV[1], ARGV[2], tonumber(ARGV[3])
local first_stock, first_units = 5, 4

local reason, m = distrust(meta, buyers, grants, applied)
if reason then return { 'distrusted', reason } end
for k = first_stock, first_stock + lines - 1 do
  if redis.call('EXISTS', KEYS[k]) == 0 then return { 'distrusted', 'damaged' } end
end
if redis.call('HEXISTS', applied, id) == 1 then return { 'known' } end

local total = 0
for line = 0, lines - 1 do
  local units = tonumber(ARGV[first_units + line])
  total = total + units
  if redis.call('GET', KEYS[first_stock + line]) ~= '-1' then redis.call('INCRBY', KEYS[first_stock + line], units) end
end
redis.call('HSET', applied, id, total)
if m.ends and m.applied == 0 then redis.call('PEXPIREAT', applied, m.ends) end
redis.call('HSET', meta, 'applied', m.applied + 1)

-- Who gave everything back keeps an entry: their order ids stay granted.
local entry = user ~= '' and redis.call('HGET', buyers, user)
if entry then
  local has, order = string.match(entry, '^(%d+) (.*)$')
  redis.call('HSET', buyers, user, math.max(0, tonumber(has) - total) .. ' ' .. order)
end

-- The count of a window that is long over has left Redis.
for k = first_stock + lines, #KEYS do
  local a = first_units + lines + 2 * (k - first_stock - lines)
  local used = redis.call('HGET', KEYS[k], ARGV[a])
  if used then redis.call('HSET', KEYS[k], ARGV[a], math.max(0, tonumber(used) - tonumber(ARGV[a + 1]))) end
end
return { 'applied' }
