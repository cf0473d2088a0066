-- trim: takes batches off the old end of an outbox. It sells nothing, so it
-- carries no era.
--
-- KEYS[1] doorbuster:{SALE}:outbox:PROCESS
-- KEYS[2] doorbuster:{SALE}:outboxes
--
-- ARGV[1] the process
-- ARGV[2] number of the last batch to take off, with all before it
-- ARGV[3] number of the last batch that is in the stream with all before it,
--         '' to leave that as it is (the batches were fenced out)
-- ARGV[4] '1' also forgets the process when its outbox is then empty and
--         nothing of it is barred: a bar must outlive its late call
-- ARGV[5] bars every batch up to this number: a call of grab.lua that was given
--         up and arrives later is refused. 0 bars none.
--
-- Returns how many batches are left.
local outbox, outboxes = KEYS[1], KEYS[2]
local process, through, acked, forget, bar = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

while true do
  local oldest = redis.call('LINDEX', outbox, -1)
  if not oldest or tonumber(string.match(oldest, '^%S+ %S+ %S+ (%d+)')) > through then break end
  redis.call('RPOP', outbox)
end
local left = redis.call('LLEN', outbox)
local known = redis.call('HGET', outboxes, process)
local had_acked, had_barred = string.match(known or '0 0', '^(%d+) (%d+)$')
local barred = math.max(bar, tonumber(had_barred))
if left == 0 and forget == '1' and barred == 0 then
  redis.call('HDEL', outboxes, process)
  return left
end
local now = math.max(tonumber(acked) or 0, tonumber(had_acked)) .. ' ' .. barred
if now ~= (known or '0 0') then redis.call('HSET', outboxes, process, now) end
return left
