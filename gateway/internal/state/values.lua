-- Leases, reads and replaces the value of a policy. It checks everything before it writes anything, because Redis does not roll back.
--   KEYS  1 the value, a hash: data, revision, fence, holder, until (milliseconds), "w:WRITER" → "sequence number, time in seconds"
--         2, 3 the format keys
--   ARGV  1 the caller's format   2 largest data   3 writers remembered   4 seconds that a writer is remembered   5 the caller, a writer
--         6 'lease': 7 milliseconds, 0 gives it up
--           'load':  7 the revision that the caller has
--           'save':  7 base   8 fence, 0: none   9 sequence number, 20 digits   10 data
-- Answers a status. With 'ok' of 'lease' follows the fence, 0: another writer has it; of 'load' the revision and, if it is another one, data;
-- of 'save' 'applied', 'stale' or 'fenced', the revision and data, which are missing if they are the caller's.
local call, tonumber, format = redis.call, tonumber, string.format
local value, me, op = KEYS[1], ARGV[5], ARGV[6]
local function text(n) return format('%.0f', n) end

local missing = {}
for i = 2, 3 do
	local version = call('GET', KEYS[i])
	if version and version ~= ARGV[1] then return {'format', version} end
	if not version then missing[#missing + 1] = KEYS[i] end
end
local kind = call('TYPE', value).ok
if kind ~= 'hash' and kind ~= 'none' then return {'kind', kind} end
if call('HSTRLEN', value, 'data') > tonumber(ARGV[2]) then return {'long', 'data'} end

local has = call('HMGET', value, 'revision', 'fence', 'holder', 'until')
local revision, fence, till = tonumber(has[1] or '0'), tonumber(has[2] or '0'), tonumber(has[4] or '0')
for name, n in pairs({revision = revision or -1, fence = fence or -1, ['until'] = till or -1}) do
	if n < 0 or n >= 9007199254740991 or n % 1 ~= 0 then return {'number', name} end
end
local function claim()
	for _, key in ipairs(missing) do call('SET', key, ARGV[1]) end
end

if op == 'lease' then
	local time = call('TIME')
	local now, lasts = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), tonumber(ARGV[7])
	if lasts == 0 then
		if has[3] == me then call('HSET', value, 'until', '0') end
		return {'ok', '0'}
	end
	if has[3] ~= me or till == 0 then
		if till > now and has[3] ~= me then return {'ok', '0'} end
		fence = fence + 1
	end
	call('HSET', value, 'holder', me, 'until', text(now + lasts), 'fence', text(fence))
	claim()
	return {'ok', text(fence)}
end

if op == 'load' then
	if revision == 0 or text(revision) == ARGV[7] then return {'ok', text(revision)} end
	return {'ok', text(revision), call('HGET', value, 'data') or ''}
end

-- Sequence numbers are compared as texts of equal length, because a Lua number has only 53 bits.
local seq = ARGV[9]
local last = call('HGET', value, 'w:' .. me)
local outcome
if last and string.sub(last, 1, 20) >= seq then
	outcome = 'applied'
elseif ARGV[8] ~= '0' and ARGV[8] ~= text(fence) then
	outcome = 'fenced'
elseif ARGV[7] ~= text(revision) then
	outcome = 'stale'
end
if outcome then
	if revision == 0 then return {'ok', outcome, '0'} end
	return {'ok', outcome, text(revision), call('HGET', value, 'data') or ''}
end
local now = tonumber(call('TIME')[1])
local writers = {}
for _, field in ipairs(call('HKEYS', value)) do
	if string.sub(field, 1, 2) == 'w:' and field ~= 'w:' .. me then
		writers[#writers + 1] = {field, tonumber(string.sub(call('HGET', value, field), 22)) or 0}
	end
end
table.sort(writers, function(a, b) return a[2] > b[2] end)
for i, other in ipairs(writers) do
	if i >= tonumber(ARGV[3]) or now - other[2] > tonumber(ARGV[4]) then call('HDEL', value, other[1]) end
end
call('HSET', value, 'data', ARGV[10], 'revision', text(revision + 1), 'w:' .. me, seq .. ' ' .. text(now))
claim()
return {'ok', 'applied', text(revision + 1)}
