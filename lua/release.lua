-- release: gives units back to one sale, once per giveback id.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:bought
-- KEYS[4] doorbuster:{SALE}:grants
-- KEYS[5] doorbuster:{SALE}:applied
-- KEYS[6..] doorbuster:{SALE}:stock:SKU, one per line
--
-- ARGV[1] giveback id
-- ARGV[2] the user whose units come back, '' for an adjustment
-- ARGV[3..] units per line
--
-- Returns {'distrusted', REASON} (see fence.lua) and changes nothing, or
--   {'applied'}  the units are back
--   {'known'}    this giveback was applied before; nothing changed
local meta, buyers, bought, grants, applied = unpack(KEYS, 1, 5)
local id, user = ARGV[1], ARGV[2]
local first_stock, first_units = 6, 3

local reason, m = distrust(meta, buyers, bought, grants, applied)
if reason then return { 'distrusted', reason } end
for k = first_stock, #KEYS do
  if redis.call('EXISTS', KEYS[k]) == 0 then return { 'distrusted', 'damaged' } end
end
if redis.call('HEXISTS', applied, id) == 1 then return { 'known' } end

local total = 0
for k = first_stock, #KEYS do
  local units = tonumber(ARGV[first_units + k - first_stock])
  total = total + units
  if redis.call('GET', KEYS[k]) ~= '-1' then redis.call('INCRBY', KEYS[k], units) end
end
redis.call('HSET', applied, id, total)
redis.call('HSET', meta, 'applied', m.applied + 1)

local entry = user ~= '' and redis.call('HGET', bought, user)
if entry then
  local has, order = string.match(entry, '^(%d+) (.*)$')
  local rest = tonumber(has) - total
  if rest > 0 then
    redis.call('HSET', bought, user, rest .. ' ' .. order)
  else
    redis.call('HDEL', bought, user)
    redis.call('SREM', buyers, user)
    redis.call('HSET', meta, 'buyers', m.buyers - 1)
  end
end
return { 'applied' }
