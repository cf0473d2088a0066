-- inspect: tells whether the state of a sale is trusted; changes nothing.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:grants
-- KEYS[4] doorbuster:{SALE}:applied
-- KEYS[5..] doorbuster:{SALE}:stock:SKU, one per item
-- then doorbuster:{SALE}:used:LIMIT:PERIOD, one per field of that name in meta
--
-- ARGV[1] number of stock keys
--
-- Returns {'distrusted', REASON} (see fence.lua; also 'damaged' when a stock key is
-- missing or a used key has another size than meta says), or
-- {'ok', gen, fence, buyers, grants, applied, remaining}: sizes of the keys and
-- the units left per stock key, -1 is unlimited.
local meta, buyers, grants, applied = unpack(KEYS, 1, 4)
local stocks = tonumber(ARGV[1])
local first_stock = 5

local reason, m = distrust(meta, buyers, grants, applied)
if reason then return { 'distrusted', reason } end
local remaining = {}
for k = first_stock, first_stock + stocks - 1 do
  local left = tonumber(redis.call('GET', KEYS[k]))
  if not left then return { 'distrusted', 'damaged' } end
  remaining[#remaining + 1] = left
end

-- A count that is missing is damage, unless its window is long over: then it has expired.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for k = first_stock + stocks, #KEYS do
  local known = redis.call('HGET', meta, string.match(KEYS[k], '}:(used:.*)$'))
  local size, expires = string.match(known or '0 0', '^(%d+) (%d+)$')
  local over = expires ~= '0' and now >= tonumber(expires)
  if not over and redis.call('HLEN', KEYS[k]) ~= tonumber(size) then return { 'distrusted', 'damaged' } end
end
return { 'ok', m.gen, m.fence, m.buyers, m.grants, m.applied, remaining }
