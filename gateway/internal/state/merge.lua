-- Adds to one policy state, or only reads it. It checks everything before it writes anything, because Redis does not roll back.
--   KEYS  1 the state, a hash: "n:NAME" → number, "w:WRITER" → "sequence number, time in seconds"   2, 3 the format keys
--   ARGV  1 the caller's format   2 fields allowed   3 writers remembered   4 seconds that a writer is remembered
--         5 "w:WRITER", empty: only read   6 sequence number, 20 digits   then "n:NAME", base and delta of each field
-- Answers a status. With 'ok' "n:NAME" and number of each field follow, otherwise a detail of what is wrong.
local call, byte, format, tonumber = redis.call, string.byte, string.format, tonumber
local state, allowed, remembered, writer, seq = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5], ARGV[6]

local missing = {}
for i = 2, 3 do
	local version = call('GET', KEYS[i])
	if version and version ~= ARGV[1] then return {'format', version} end
	if not version then missing[#missing + 1] = KEYS[i] end
end
local kind = call('TYPE', state).ok
if kind ~= 'hash' and kind ~= 'none' then return {'kind', kind} end
local length = call('HLEN', state)
if length > allowed + remembered then return {'long', tostring(length)} end

local text, writers, count = {}, {}, 0
local stored = call('HGETALL', state)
for i = 1, #stored, 2 do
	local field, value = stored[i], stored[i + 1]
	local tag, colon = byte(field, 1, 2)
	if tag == 110 and colon == 58 then -- n:
		local x = tonumber(value)
		if not x or x - x ~= 0 then return {'number', field} end -- infinity minus infinity is NaN
		text[field], count = value, count + 1
	elseif tag == 119 and colon == 58 then -- w:
		writers[field] = value
	else
		return {'number', field}
	end
end

-- Sequence numbers are compared as texts of equal length, because a Lua number has only 53 bits.
local last = writer ~= '' and writers[writer]
if writer ~= '' and not (last and string.sub(last, 1, 20) >= seq) then
	local now = tonumber(call('TIME')[1])
	local sums, n = {writer, seq .. ' ' .. now}, 2
	for i = 7, #ARGV, 3 do
		local field = ARGV[i]
		local old = text[field]
		if not old then
			old, count = ARGV[i + 1], count + 1
		end
		local sum = tonumber(old) + tonumber(ARGV[i + 2])
		if sum - sum ~= 0 then return {'sum', field} end
		local sumText = format('%.17g', sum)
		text[field], sums[n + 1], sums[n + 2], n = sumText, field, sumText, n + 2
	end
	if count > allowed then return {'many', tostring(count)} end

	local others = {}
	for field, value in pairs(writers) do
		if field ~= writer then others[#others + 1] = {field, tonumber(string.sub(value, 22)) or 0} end
	end
	if #others >= remembered then
		table.sort(others, function(a, b) return a[2] > b[2] end)
	end
	for i, other in ipairs(others) do
		if i >= remembered or now - other[2] > tonumber(ARGV[4]) then call('HDEL', state, other[1]) end
	end
	for i = 1, n, 1000 do -- the number of arguments of a call is limited
		call('HSET', state, unpack(sums, i, math.min(i + 999, n)))
	end
	for _, key in ipairs(missing) do call('SET', key, ARGV[1]) end
end

local answer, n = {'ok'}, 1
for field, value in pairs(text) do
	answer[n + 1], answer[n + 2], n = field, value, n + 2
end
return answer
