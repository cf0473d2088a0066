-- find: looks up where one grant of a sale stands; changes nothing.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:grants
-- KEYS[4] doorbuster:{SALE}:applied
-- KEYS[5] doorbuster:{SALE}:outboxes
--
-- ARGV[1] order id
--
-- Returns {'distrusted', REASON} (see fence.lua), or
--   {'absent'}          the sale has no such grant
--   {'durable', GRANT}  its batch is known to be in the stream; the stored grant
--   {'pending', GRANT}  that is not known: not acknowledged yet, or its process
--                       was forgotten
local meta, buyers, grants, applied, outboxes = unpack(KEYS, 1, 5)
local order = ARGV[1]

local reason = distrust(meta, buyers, grants, applied)
if reason then return { 'distrusted', reason } end
local stored = redis.call('HGET', grants, order)
if not stored then return { 'absent' } end
local process, number = string.match(stored, '^(%S+) (%d+)\n')
if process == '-' then return { 'durable', stored } end
local known = redis.call('HGET', outboxes, process)
local acked = known and string.match(known, '^(%d+) ') or '0'
return { tonumber(number) <= tonumber(acked) and 'durable' or 'pending', stored }
