-- grab: decides a batch of grabs of one sale, in order of arrival, each all or
-- nothing, and puts the winners on the outbox of the calling process.
--
-- KEYS[1] doorbuster:{SALE}:meta
-- KEYS[2] doorbuster:{SALE}:buyers
-- KEYS[3] doorbuster:{SALE}:grants
-- KEYS[4] doorbuster:{SALE}:applied
-- KEYS[5] doorbuster:{SALE}:outboxes
-- KEYS[6] doorbuster:{SALE}:rate
-- KEYS[7] doorbuster:{SALE}:outbox:PROCESS
-- KEYS[8..] doorbuster:{SALE}:stock:SKU, one per SKU the batch names
-- then doorbuster:{SALE}:used:LIMIT:PERIOD, one per limit and period the batch counts in
--
-- ARGV[1] most units a user may hold, 0 is no limit
-- ARGV[2] the calling process
-- ARGV[3] number of this batch, counted by the process from 1
-- ARGV[4] number of the last batch that is in the stream with all before it;
--         the outbox is trimmed through it
-- ARGV[5] most grabs per second that are decided, replays aside; 0 is no limit
-- ARGV[6] number of stock keys
-- ARGV[7] the records of all grabs, joined: what the outbox gets when all win
-- ARGV[8..] per used key three values: whose units it counts ('user', 'ip' or
--         'sale'), the most units, when the key expires (Unix ms, 0 is never)
-- then five columns of one value per grab: users ('' for an adjustment, which no
--         limit holds); order ids; lines ('1:2,3:1': index of the stock key among
--         the SKUs, quantity in units; one SKU twice counts together); grants as
--         they are stored: 'PROCESS NUMBER' of this batch, a line feed, the record
--         (see pkg/sale/batch.go); and, only with used keys, counts ('1,2 IP':
--         the indices of the used keys it counts in, and the client's address)
--
-- Returns {'distrusted', REASON} (see fence.lua; also 'damaged' when a stock
-- key is missing or a used key has another size than meta says) and changes
-- nothing, {'barred'} and changes nothing when trim.lua barred
-- this number (the caller gave the batch up before it arrived), or
-- {'ok', gen, fence, applied, codes, details, remaining, used}:
--   applied    how many givebacks the sale has seen: while it stays the same,
--              what is sold out stays sold out
--   codes      one letter per grab:
--     W  won
--     R  replayed: this order id was granted before; detail: the stored grant
--     A  already grabbed: the user holds as much as the limit 1 allows; detail: the last order id
--     L  the per-user limit refuses; detail: units the user holds
--     C  a limit refuses; detail: index of its used key
--     S  sold out; detail: index of the SKU that is short
--     T  too many grabs this second; detail: milliseconds until the next may come
--   details    one value per R, A, L, C, S and T, in order
--   remaining  units left per stock key after the batch, -1 is unlimited
--   used       per used key of scope sale the units used after the batch; -1 for the others
local meta, buyers, grants, applied, outboxes, rate, outbox = unpack(KEYS, 1, 7)
local per_user, process, number, acked = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local ARGV = ARGV -- a local is found faster than a global
local per_second, stocks = tonumber(ARGV[5]), tonumber(ARGV[6])
local everything = ARGV[7]
local first_stock, first_limit = 8, 8
local outbox_grace = 48 * 3600 * 1000 -- ms that an outbox outlives a state that ends

local reason, m = distrust(meta, buyers, grants, applied)
if reason then return { 'distrusted', reason } end

local known = redis.call('HGET', outboxes, process) or '0 0'
local known_acked, barred = string.match(known, '^(%d+) (%d+)$')
if tonumber(number) <= tonumber(barred) then return { 'barred' } end

local stock = {}
for k = 1, stocks do
  local left = tonumber(redis.call('GET', KEYS[first_stock + k - 1]))
  if not left then return { 'distrusted', 'damaged' } end
  stock[k] = left
end

-- limits[k] is one used key; units is what its subjects have used, grown who
-- used more in this batch.
local limits = {}
for k = 1, #KEYS - first_stock - stocks + 1 do
  local a, key = first_limit + 3 * (k - 1), KEYS[first_stock + stocks + k - 1]
  local field = string.match(key, '}:(used:.*)$')
  local size = tonumber(string.match(redis.call('HGET', meta, field) or '0', '^%d+'))
  if redis.call('HLEN', KEYS[first_stock + stocks + k - 1]) ~= size then return { 'distrusted', 'damaged' } end
  limits[k] = {
    key = key, field = field, size = size, scope = ARGV[a], max = tonumber(ARGV[a + 1]), expires = ARGV[a + 2],
    units = {}, grown = {},
  }
end
local columns = #limits > 0 and 5 or 4
local users = first_limit + 3 * #limits - 1 -- each column is named by the place before its first value
local asks = (#ARGV - users) / columns
local orders, lines, stored_grants, counts = users + asks, users + 2 * asks, users + 3 * asks, users + 4 * asks

-- An order id can only have been granted before when its user has an entry, or
-- is none: most batches need no look at the grants.
local holds = redis.call('HMGET', buyers, unpack(ARGV, users + 1, users + asks))
local known_ids, known_at, stored_before = {}, {}, {}
for i = 1, asks do
  if holds[i] or ARGV[users + i] == '' then
    known_ids[#known_ids + 1] = ARGV[orders + i]
    known_at[#known_at + 1] = i
  end
end
if #known_ids > 0 then
  for j, stored in ipairs(redis.call('HMGET', grants, unpack(known_ids))) do
    stored_before[known_at[j]] = stored
  end
end

-- lines and counts are parsed once per distinct text: most grabs of a sale look alike.
local parsed = {}
local function parse(text)
  local all = { units = 0 }
  local of = {}
  for index, quantity in string.gmatch(text, '(%d+):(%d+)') do
    local line = of[index]
    if not line then
      line = { tonumber(index), 0 }
      of[index], all[#all + 1] = line, line
    end
    line[2] = line[2] + tonumber(quantity)
    all.units = all.units + tonumber(quantity)
  end
  parsed[text] = all
  return all
end

local function short(wanted)
  for _, line in ipairs(wanted) do
    local left = stock[line[1]]
    if left ~= -1 and left < line[2] then return line[1] end
  end
end

local function take(wanted, taken)
  for _, line in ipairs(wanted) do
    if stock[line[1]] ~= -1 then
      stock[line[1]] = stock[line[1]] - line[2]
      taken[line[1]] = (taken[line[1]] or 0) + line[2]
    end
  end
end

-- counters lists the limits a grab counts in, each with the subject it counts for.
local function counters(i, user)
  local indices, ip = string.match(ARGV[counts + i], '^(%S*) (.*)$')
  local all = {}
  for index in string.gmatch(indices, '%d+') do
    local limit = limits[tonumber(index)]
    local subject = limit.scope == 'user' and user or limit.scope == 'ip' and ip or '*'
    if not limit.units[subject] then
      limit.units[subject] = tonumber(redis.call('HGET', limit.key, subject) or 0)
    end
    all[#all + 1] = { index = tonumber(index), limit = limit, subject = subject }
  end
  return all
end

local function full(counted, units)
  for _, c in ipairs(counted) do
    if c.limit.units[c.subject] + units > c.limit.max then return c.index end
  end
end

local function count(counted, units)
  for _, c in ipairs(counted) do
    c.limit.units[c.subject] = c.limit.units[c.subject] + units
    c.limit.grown[c.subject] = true
  end
end

-- The rate is a bucket of one second's tokens, filled by this server's clock.
local tokens, now
if per_second > 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
  local had, at = string.match(redis.call('GET', rate) or '', '^(%S+) (%d+)$')
  tokens = had and math.min(per_second, had + math.max(0, now - at) * per_second / 1000000) or per_second
end

local codes, details, detailed, taken = {}, {}, 0, {}
local new_grants, made, new_bought, bought, winners, won = {}, 0, {}, 0, {}, 0
local replayed, resent = {}, {}
local fresh, buyer_count = {}, m.buyers -- fresh: what users hold since this batch
local head_length = #process + #number + 2

local function detail(code, value)
  detailed = detailed + 1
  details[detailed] = value
  return code
end

-- replay answers an order id that was granted before. One that no restore wrote is
-- sent again: its batch may not be in the stream yet.
local function replay(order, stored, in_batch)
  if not in_batch and not resent[order] and string.sub(stored, 1, 2) ~= '- ' then
    replayed[#replayed + 1] = string.sub(stored, string.find(stored, '\n', 1, true) + 1)
    resent[order] = true
  end
  return detail('R', stored)
end

-- payload is what the outbox gets: the records of the winners, then what was replayed.
local function payload()
  if won == asks then return everything end
  local records = {}
  for j, i in ipairs(winners) do
    records[j] = string.sub(ARGV[stored_grants + i], head_length + 1)
  end
  return table.concat(records) .. table.concat(replayed)
end

local function granted_here(order)
  for k = 1, made, 2 do
    if new_grants[k] == order then return new_grants[k + 1] end
  end
end

local function decide(i, user, order)
  local stored = stored_before[i]
  if stored then return replay(order, stored, false) end
  local entry = fresh[user]
  if entry then
    stored = granted_here(order)
    if stored then return replay(order, stored, true) end
  else
    entry = holds[i]
  end
  if tokens and user ~= '' then
    if tokens < 1 then return detail('T', math.ceil((1 - tokens) * 1000 / per_second)) end
    tokens = tokens - 1
  end

  local text = ARGV[lines + i]
  local wanted = parsed[text] or parse(text)
  local units, counted = wanted.units
  if user ~= '' then
    local has, last = 0
    if entry then
      has, last = string.match(entry, '^(%d+) (.*)$')
      has = tonumber(has)
    end
    units = has + units
    if per_user > 0 and units > per_user then
      if per_user == 1 and has > 0 then return detail('A', last) end
      return detail('L', has)
    end
    if columns == 5 then
      counted = counters(i, user)
      local at = full(counted, wanted.units)
      if at then return detail('C', at) end
    end
  end
  local missing = short(wanted)
  if missing then return detail('S', missing) end

  take(wanted, taken)
  if user ~= '' then
    if counted then count(counted, wanted.units) end
    if not entry then buyer_count = buyer_count + 1 end
    entry = (units == 1 and '1 ' or units .. ' ') .. order -- most hold one: writing a number is slow
    new_bought[bought + 1], new_bought[bought + 2] = user, entry
    bought = bought + 2
  end
  fresh[user] = entry or ''
  new_grants[made + 1], new_grants[made + 2] = order, ARGV[stored_grants + i]
  made = made + 2
  won = won + 1
  winners[won] = i
  return 'W'
end

for i = 1, asks do
  codes[i] = decide(i, ARGV[users + i], ARGV[orders + i])
end

-- A batch that only refuses leaves the outbox alone: the trim waits for the next winner.
local sends = won + #replayed > 0
local settled = 0
while sends do
  local oldest = redis.call('LINDEX', outbox, -1 - settled)
  if not oldest or tonumber(string.match(oldest, '^%S+ %S+ %S+ (%d+)')) > acked then break end
  settled = settled + 1
end

-- Nothing was written so far. From here on nothing can fail half way.
if tokens then redis.call('SET', rate, string.format('%.6f %.0f', tokens, now), 'PX', 2000) end
for index, quantity in pairs(taken) do
  redis.call('DECRBY', KEYS[first_stock + index - 1], quantity)
end
if won > 0 then
  -- A user who won twice stands here twice: the later entry is the one that stays.
  if bought > 0 then redis.call('HSET', buyers, unpack(new_bought, 1, bought)) end
  redis.call('HSET', grants, unpack(new_grants, 1, made))
  redis.call('HSET', meta, 'buyers', buyer_count, 'grants', m.grants + won)
end
for _, limit in ipairs(limits) do
  local fields = {}
  for subject in pairs(limit.grown) do
    fields[#fields + 1] = subject
    fields[#fields + 1] = limit.units[subject]
  end
  if #fields > 0 then
    local new, expires = redis.call('HSET', limit.key, unpack(fields)), m.ends or limit.expires
    if new > 0 then redis.call('HSET', meta, limit.field, limit.size + new .. ' ' .. expires) end
    if expires ~= '0' then redis.call('PEXPIREAT', limit.key, expires) end
  end
end
if sends then
  if settled > 0 then redis.call('RPOP', outbox, settled) end
  local head = 'DB1 ' .. m.gen .. ' ' .. m.fence .. ' ' .. number .. ' ' .. process .. '\n'
  redis.call('LPUSH', outbox, head .. payload())
  -- A relay may know of more: what was durable stays durable.
  redis.call('HSET', outboxes, process, math.max(acked, tonumber(known_acked)) .. ' ' .. barred)
end
if sends and m.ends then
  -- The state leaves Redis at an hour. What is not in the stream yet waits longer, for
  -- whoever loads the sale next.
  if m.buyers == 0 then redis.call('PEXPIREAT', buyers, m.ends) end
  if m.grants == 0 then redis.call('PEXPIREAT', grants, m.ends) end
  redis.call('PEXPIREAT', outbox, m.ends + outbox_grace)
  redis.call('PEXPIREAT', outboxes, m.ends + outbox_grace)
end

local used = {}
for k, limit in ipairs(limits) do
  used[k] = limit.scope == 'sale' and (limit.units['*'] or tonumber(redis.call('HGET', limit.key, '*') or 0)) or -1
end
return { 'ok', m.gen, m.fence, m.applied, table.concat(codes), details, stock, used }
