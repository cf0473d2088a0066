-- grab: decides a batch of grabs of one sale, in order of arrival, each all or
-- nothing, and puts the winners on the outbox of the calling process.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:bought
-- KEYS[4] doorbuster:{SALE}:grants
-- KEYS[5] doorbuster:{SALE}:applied
-- KEYS[6] doorbuster:{SALE}:outboxes
-- KEYS[7] doorbuster:{SALE}:outbox:PROCESS
-- KEYS[8..] doorbuster:{SALE}:stock:SKU, one per SKU the batch names
--
-- ARGV[1] most units a user may hold, 0 is no limit
-- ARGV[2] the calling process
-- ARGV[3] number of this batch, counted by the process from 1
-- ARGV[4] number of the last batch that is in the stream with all before it;
--         the outbox is trimmed through it
-- ARGV[5..] per grab four values: user ('' for an adjustment, which no user
--         limit holds), order id, lines ('1:2,3:1': index of the stock key among
--         the SKUs, quantity in units; one SKU twice counts together), record
--         (see pkg/sale/batch.go)
--
-- Returns {'distrusted', REASON} (see fence.lua; also 'damaged' when a stock
-- key is missing) and changes nothing, {'barred'} and changes nothing when trim.lua barred
-- this number (the caller gave the batch up before it arrived), or
-- {'ok', gen, fence, applied, codes, details, remaining}:
--   applied    how many givebacks the sale has seen: while it stays the same,
--              what is sold out stays sold out
--   codes      one letter per grab:
--     W  won
--     R  replayed: this order id was granted before; detail: the stored grant
--     A  already grabbed: the user holds as much as the limit 1 allows; detail: the last order id
--     L  the per-user limit refuses; detail: units the user holds
--     S  sold out; detail: index of the SKU that is short
--   details    one value per R, A, L and S, in order
--   remaining  units left per stock key after the batch, -1 is unlimited
local meta, buyers, bought, grants, applied, outboxes, outbox = unpack(KEYS, 1, 7)
local per_user, process, number, acked = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local first_stock, first_ask, width = 8, 5, 4

local reason, m = distrust(meta, buyers, bought, grants, applied)
if reason then return { 'distrusted', reason } end

local known = redis.call('HGET', outboxes, process) or '0 0'
local known_acked, barred = string.match(known, '^(%d+) (%d+)$')
if tonumber(number) <= tonumber(barred) then return { 'barred' } end

local stock = {}
for k = first_stock, #KEYS do
  local left = tonumber(redis.call('GET', KEYS[k]))
  if not left then return { 'distrusted', 'damaged' } end
  stock[k - first_stock + 1] = left
end

local users, orders = {}, {}
for a = first_ask, #ARGV, width do
  users[#users + 1] = ARGV[a]
  orders[#orders + 1] = ARGV[a + 1]
end
local granted = redis.call('HMGET', grants, unpack(orders))
local holds = redis.call('SMISMEMBER', buyers, unpack(users))

-- units[user]: what the user holds, fetched only when it can matter.
local units, last = {}, {}
local function held(user, i)
  if not units[user] then
    local entry = holds[i] == 1 and redis.call('HGET', bought, user)
    if entry then
      local n, order = string.match(entry, '^(%d+) (.*)$')
      units[user], last[user] = tonumber(n), order
    else
      units[user] = 0
    end
  end
  return units[user]
end

-- lines are parsed once per distinct text: most grabs of a sale look alike.
local parsed = {}
local function parse(text)
  local lines = parsed[text]
  if not lines then
    lines = { units = 0 }
    local of = {}
    for index, quantity in string.gmatch(text, '(%d+):(%d+)') do
      local line = of[index]
      if not line then
        line = { tonumber(index), 0 }
        of[index], lines[#lines + 1] = line, line
      end
      line[2] = line[2] + tonumber(quantity)
      lines.units = lines.units + tonumber(quantity)
    end
    parsed[text] = lines
  end
  return lines
end

local function short(lines)
  for _, line in ipairs(lines) do
    local left = stock[line[1]]
    if left ~= -1 and left < line[2] then return line[1] end
  end
end

local codes, details, taken = {}, {}, {}
local new_buyers, new_bought, new_grants, payload, replayed = {}, {}, {}, {}, {}
local in_batch = {}
local prefix = m.gen .. ' ' .. process .. ' ' .. number .. '\n'

local function detail(code, value)
  details[#details + 1] = value
  return code
end

local function decide(i, user, order, text, record)
  local stored = granted[i] or in_batch[order]
  if stored then
    if not in_batch[order] and string.match(stored, '^%d+') == m.gen then
      replayed[#replayed + 1] = string.sub(stored, string.find(stored, '\n', 1, true) + 1)
      in_batch[order] = stored
    end
    return detail('R', stored)
  end
  local lines = parse(text)
  if user ~= '' and per_user > 0 then
    local has = held(user, i)
    if has + lines.units > per_user then
      if per_user == 1 and has > 0 then return detail('A', last[user]) end
      return detail('L', has)
    end
  end
  local missing = short(lines)
  if missing then return detail('S', missing) end
  for _, line in ipairs(lines) do
    if stock[line[1]] ~= -1 then
      stock[line[1]] = stock[line[1]] - line[2]
      taken[line[1]] = (taken[line[1]] or 0) + line[2]
    end
  end
  if user ~= '' then
    local had = held(user, i)
    if had == 0 then new_buyers[#new_buyers + 1] = user end
    units[user], last[user] = had + lines.units, order
    new_bought[user] = units[user] .. ' ' .. order
  end
  stored = prefix .. record
  in_batch[order] = stored
  new_grants[#new_grants + 1] = order
  new_grants[#new_grants + 1] = stored
  payload[#payload + 1] = record
  return 'W'
end

for i = 1, #users do
  local a = first_ask + (i - 1) * width
  codes[i] = decide(i, ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3])
end

-- A batch that only refuses writes nothing: the trim waits for the next winner.
local sends = #payload + #replayed > 0
local settled = 0
while sends do
  local oldest = redis.call('LINDEX', outbox, -1 - settled)
  if not oldest or tonumber(string.match(oldest, '^%S+ %S+ %S+ (%d+)')) > acked then break end
  settled = settled + 1
end

-- Nothing was written so far. From here on nothing can fail half way.
for index, quantity in pairs(taken) do
  redis.call('DECRBY', KEYS[first_stock + index - 1], quantity)
end
if #new_buyers > 0 then redis.call('SADD', buyers, unpack(new_buyers)) end
if #new_grants > 0 then
  local fields = {}
  for user, entry in pairs(new_bought) do
    fields[#fields + 1] = user
    fields[#fields + 1] = entry
  end
  if #fields > 0 then redis.call('HSET', bought, unpack(fields)) end
  redis.call('HSET', grants, unpack(new_grants))
  redis.call('HSET', meta, 'buyers', m.buyers + #new_buyers, 'grants', m.grants + #new_grants / 2)
end
if sends then
  if settled > 0 then redis.call('RPOP', outbox, settled) end
  local head = 'DB1 ' .. m.gen .. ' ' .. m.fence .. ' ' .. number .. ' ' .. process .. '\n'
  redis.call('LPUSH', outbox, head .. table.concat(payload) .. table.concat(replayed))
  -- A relay may know of more: what was durable stays durable.
  redis.call('HSET', outboxes, process, math.max(acked, tonumber(known_acked)) .. ' ' .. barred)
end

return { 'ok', m.gen, m.fence, m.applied, table.concat(codes), details, stock }
