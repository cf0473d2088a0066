-- inspect: tells whether the state of a sale is trusted; changes nothing.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:grants
-- KEYS[4] doorbuster:{SALE}:applied
-- KEYS[5..] doorbuster:{SALE}:stock:SKU, one per item
--
-- Returns {'distrusted', REASON} (see fence.lua), or
-- {'ok', gen, fence, buyers, grants, applied, remaining}: sizes of the keys and
-- the units left per stock key, -1 is unlimited.
local meta, buyers, grants, applied = unpack(KEYS, 1, 4)
local first_stock = 5

local reason, m = distrust(meta, buyers, grants, applied)
if reason then return { 'distrusted', reason } end
local remaining = {}
for k = first_stock, #KEYS do
  local left = tonumber(redis.call('GET', KEYS[k]))
  if not left then return { 'distrusted', 'damaged' } end
  remaining[#remaining + 1] = left
end
return { 'ok', m.gen, m.fence, m.buyers, m.grants, m.applied, remaining }
