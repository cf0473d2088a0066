-- restore: makes a rebuilt state the sale's state, in one step. The rebuilt
-- state stands in temporary keys; a temporary key that would be empty does not
-- exist.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2], KEYS[3], ... pairs of a live key and its temporary key
--         doorbuster:{SALE}:tmp:TOKEN:NAME, in this order: buyers, grants, applied,
--         the stock:SKU of every item, the used:LIMIT:PERIOD of every window that may
--         still be counted in
--
-- ARGV[1] generation
-- ARGV[2] stream sequence of the fence that began it
-- ARGV[3] number of buyers
-- ARGV[4] number of grants
-- ARGV[5] number of applied givebacks
-- ARGV[6] when all of it leaves Redis (Unix ms), 0 is never; then used keys go with it
-- ARGV[7..] per used key two values: number of its subjects, when it expires
--         (Unix ms, 0 is never)
--
-- Returns
--   {'restored'}
--   {'distrusted', 'moved'}       this server changed its role since the era was minted
--   {'older', GENERATION}         the sale already has a later generation, or
--                                 this one under this fence or a later one, or
--                                 the restore of a later one is under way
--                                 (meta.next, see Store.Announce)
--   {'incomplete', KEY}           a temporary key is missing or has another size
local meta = KEYS[1]
local gen, fence, buyers, grants, applied = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local ends = ARGV[6]

if moved() then return { 'distrusted', 'moved' } end
local first_count = 7
local counts = (#ARGV - first_count + 1) / 2
local first_used = #KEYS - 2 * counts + 1

local present = redis.call('HMGET', meta, 'gen', 'fence', 'next')
-- What is given back to this state would be missing in the one that comes.
if tonumber(present[3] or 0) > tonumber(gen) then return { 'older', present[3] } end
local ahead = tonumber(present[1] or 0) - tonumber(gen)
-- The same restore twice would bring back what was sold in between.
if ahead > 0 or (ahead == 0 and tonumber(present[2] or 0) >= tonumber(fence)) then return { 'older', present[1] } end

local sizes = { buyers, grants, applied }
local fields = {}
for k = 2, #KEYS, 2 do
  local temporary, wanted, has = KEYS[k + 1], sizes[k / 2]
  if k >= first_used then
    wanted = tonumber(ARGV[first_count + k - first_used])
    fields[#fields + 1] = string.match(KEYS[k], '}:(used:.*)$')
    fields[#fields + 1] = wanted .. ' ' .. (ends == '0' and ARGV[first_count + k - first_used + 1] or ends)
  end
  if wanted then
    has = redis.call('HLEN', KEYS[k + 1])
  else
    wanted, has = 1, redis.call('EXISTS', KEYS[k + 1])
  end
  if has ~= wanted then return { 'incomplete', temporary } end
end

for k = 2, #KEYS, 2 do
  redis.call('UNLINK', KEYS[k])
  if redis.call('EXISTS', KEYS[k + 1]) == 1 then
    redis.call('RENAME', KEYS[k + 1], KEYS[k])
    local expires = ends
    if ends == '0' and k >= first_used then expires = ARGV[first_count + k - first_used + 1] end
    if expires == '0' then
      redis.call('PERSIST', KEYS[k])
    else
      redis.call('PEXPIREAT', KEYS[k], expires)
    end
  end
end
redis.call('DEL', meta)
redis.call('HSET', meta, 'era', ERA, 'gen', gen, 'fence', fence, 'buyers', buyers, 'grants', grants, 'applied', applied,
  unpack(fields))
if ends ~= '0' then
  redis.call('HSET', meta, 'ends', ends)
  redis.call('PEXPIREAT', meta, ends)
end
return { 'restored' }
