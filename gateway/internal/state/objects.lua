-- Commits declared objects, and reads them and their history. It checks everything before it writes anything, because Redis does not roll back.
--   KEYS  1 format   2 head, a text, see below   3 data, a hash: object → document   4 changed, a sorted set: object → revision of its last change,
--         deleted ones included   5 deleted, a sorted set: object → revision   6 commits, a sorted set: ID → revision
--         7 events, a hash: number → event   8 subjects, a sorted set: "SUBJECT:NUMBER", all scores 0
--         9 the other format key, that of policies' states
--   ARGV  1 the caller's format   2 'commit', 'changes' or 'history'   then the arguments listed above each of these functions
-- Answers a status. With 'ok' the result follows, otherwise a detail of what is wrong.
local call, tonumber, format, match = redis.call, tonumber, string.format, string.match
local function text(n) return format('%.0f', n) end

-- Check the format first: in another one the other keys may have other types.
local versions = {}
for _, i in ipairs({1, 9}) do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= 'string' and kind ~= 'none' then return {'damaged', KEYS[i] .. ' is a ' .. kind .. ', not a string'} end
	local version = call('GET', KEYS[i])
	if version and version ~= ARGV[1] then return {'format', version} end
	versions[i] = version
end
local kinds = {'string', 'string', 'hash', 'zset', 'zset', 'zset', 'hash', 'zset'}
for i, want in ipairs(kinds) do
	local kind = call('TYPE', KEYS[i]).ok
	if kind ~= want and kind ~= 'none' then return {'damaged', KEYS[i] .. ' is a ' .. kind .. ', not a ' .. want} end
end

-- The head: revision, ID of the commit that made it, number of objects, revision up to which deletions are no longer remembered, numbers of the
-- oldest and the newest event (the oldest less 1 if there are none), bytes of all events.
local headText = call('GET', KEYS[2])
local revision, id, objects, floor, oldest, newest, bytes = 0, '', 0, 0, 1, 0, 0
if headText then
	local fields = {match(headText, '^(%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+)$')}
	if #fields ~= 7 or #headText > 160 then return {'damaged', KEYS[2] .. ' is not what this program writes'} end
	if not versions[1] then return {'damaged', KEYS[1] .. ' is missing'} end
	revision, id, objects, floor = tonumber(fields[1]), fields[2], tonumber(fields[3]), tonumber(fields[4])
	oldest, newest, bytes = tonumber(fields[5]), tonumber(fields[6]), tonumber(fields[7])
	if revision >= 9007199254740991 or newest >= 9007199254740991 then return {'damaged', KEYS[2] .. ' has counted too far'} end
end
for _, check in ipairs({{3, 'HLEN', objects}, {4, 'ZCARD', objects + call('ZCARD', KEYS[5])}, {7, 'HLEN', newest - oldest + 1}, {8, 'ZCARD', newest - oldest + 1}}) do
	local n = call(check[2], KEYS[check[1]])
	if n ~= check[3] then return {'damaged', KEYS[check[1]] .. ' has ' .. text(n) .. ' entries, and should have ' .. text(check[3])} end
end

-- Whether this store remembers that the commit made the revision.
local function made(commit, at)
	if at == revision then return commit == id end
	return tonumber(call('ZSCORE', KEYS[6], commit) or -1) == at
end

-- ARGV  3 ID   4 revision that the commit is made against   5 the ID of the commit that made it, empty: not known
--       6 objects allowed   7 events kept   8 bytes of events kept   9 deleted objects remembered   10 commits remembered
--       11 number of objects put   12 deleted   13 number of events   then object and document of each put, each object deleted, and of each
--       event the subject and the event, which names the revision that this commit makes
local function commit()
	local known = call('ZSCORE', KEYS[6], ARGV[3])
	if known then return {'ok', text(tonumber(known))} end
	if tonumber(ARGV[4]) ~= revision or (ARGV[5] ~= '' and ARGV[5] ~= id) then return {'stale', text(revision)} end
	local puts, deletes, events, first = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13]), 14
	local firstDelete = first + 2 * puts
	local firstEvent = firstDelete + deletes

	local count = objects
	for i = first, firstDelete - 2, 2 do count = count + 1 - call('HEXISTS', KEYS[3], ARGV[i]) end
	for i = firstDelete, firstEvent - 1 do count = count - call('HEXISTS', KEYS[3], ARGV[i]) end
	if count > tonumber(ARGV[6]) and count > objects then return {'many', text(count)} end

	-- A server without memory refuses the first write. The others change nothing; they fail here if the user lacks a permission.
	call('SET', KEYS[1], ARGV[1])
	call('SET', KEYS[9], ARGV[1])
	call('HDEL', KEYS[3], '')
	call('ZADD', KEYS[4], 'XX', 0, '')
	call('ZREM', KEYS[4], '')
	call('ZREMRANGEBYRANK', KEYS[6], 1, 0)

	revision = revision + 1
	for i = first, firstDelete - 2, 2 do
		call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
		call('ZADD', KEYS[4], revision, ARGV[i])
		call('ZREM', KEYS[5], ARGV[i])
	end
	for i = firstDelete, firstEvent - 1 do
		if call('HDEL', KEYS[3], ARGV[i]) == 1 then
			call('ZADD', KEYS[4], revision, ARGV[i])
			call('ZADD', KEYS[5], revision, ARGV[i])
		end
	end
	local excess = call('ZCARD', KEYS[5]) - tonumber(ARGV[9])
	if excess > 0 then
		local gone = call('ZRANGE', KEYS[5], 0, excess - 1, 'WITHSCORES')
		for i = 1, #gone, 2 do
			call('ZREM', KEYS[4], gone[i])
			call('ZREM', KEYS[5], gone[i])
			floor = tonumber(gone[i + 1])
		end
	end

	for i = firstEvent, firstEvent + 2 * events - 2, 2 do
		newest = newest + 1
		call('HSET', KEYS[7], text(newest), ARGV[i + 1])
		call('ZADD', KEYS[8], 0, ARGV[i] .. format(':%016.0f', newest))
		bytes = bytes + #ARGV[i + 1]
	end
	while newest - oldest + 1 > tonumber(ARGV[7]) or bytes > tonumber(ARGV[8]) do
		local event = call('HGET', KEYS[7], text(oldest)) or ''
		call('ZREM', KEYS[8], (match(event, '^%d+ %-?%d+ ([^\n]+)\n') or '') .. format(':%016.0f', oldest))
		call('HDEL', KEYS[7], text(oldest))
		bytes, oldest = bytes - #event, oldest + 1
	end

	call('ZADD', KEYS[6], revision, ARGV[3])
	call('ZREMRANGEBYRANK', KEYS[6], 0, -tonumber(ARGV[10]) - 1)
	call('SET', KEYS[2], table.concat({text(revision), ARGV[3], text(count), text(floor), text(oldest), text(newest), text(bytes)}, ' '))
	return {'ok', text(revision)}
end

-- One page of changes, ordered by revision. An object that changes while pages are read moves to a later page, so after the last page, which no
-- object follows, the reader has a snapshot of that moment.
-- ARGV  3 the revision since   4 the ID of the commit that made it, empty: not known   5 objects to visit   6 bytes to return, about
--       for later pages also 7 revision of the last object visited   8 that object   9 '1' if everything is read, else '0'
--       10 the floor at the first page; 3 and 4 are then the store's revision and its ID at the first page
-- Answers 'ok', revision, its ID, '1' if everything is read, else '0'; '1' if more pages follow; floor; revision and name of the last object
-- visited; then object, revision and document (false if deleted) of each. 'again': the store no longer continues the one of the first page.
local function changes()
	local since, max, budget = tonumber(ARGV[3]), tonumber(ARGV[5]), tonumber(ARGV[6])
	local known = since <= revision and (ARGV[4] == '' or made(ARGV[4], since))
	local complete, start
	if ARGV[7] then
		if not known or (text(floor) ~= ARGV[10] and floor > tonumber(ARGV[7])) then return {'again'} end
		complete = ARGV[9] == '1'
		-- If the last object has changed again, its position is gone: read all objects of its old revision again.
		if tonumber(call('ZSCORE', KEYS[4], ARGV[8]) or -1) == tonumber(ARGV[7]) then
			start = call('ZRANK', KEYS[4], ARGV[8]) + 1
		else
			start = call('ZCOUNT', KEYS[4], '-inf', '(' .. ARGV[7])
		end
	else
		complete = since == 0 or not known or since < floor
		start = complete and 0 or call('ZCOUNT', KEYS[4], '-inf', ARGV[3])
	end
	local begun = ARGV[7] and since or revision
	local page = call('ZRANGE', KEYS[4], start, start + max - 1, 'WITHSCORES')
	local answer, n, looked = {'ok', text(revision), id, complete and '1' or '0', '0', text(floor), ARGV[7] or '0', ARGV[8] or ''}, 8, 0
	for i = 1, #page, 2 do
		if budget <= 0 then break end
		local object, at = page[i], tonumber(page[i + 1])
		local document = call('HGET', KEYS[3], object)
		-- A reader of everything has not seen objects that were deleted before its first page.
		if document or not complete or at > begun then
			answer[n + 1], answer[n + 2], answer[n + 3], n = object, text(at), document, n + 3
			budget = budget - #object - (document and #document or 0)
		end
		looked, answer[7], answer[8] = looked + 1, text(at), object
	end
	if start + looked < call('ZCARD', KEYS[4]) then answer[5] = '1' end
	return answer
end

-- ARGV  3 the subject, empty: all   4 only events before this number   5 events to return   6 bytes to return, about
-- Answers 'ok', '1' if there may be more, then number and event of each, newest first.
local function history()
	local before, max, budget = math.min(tonumber(ARGV[4]), newest + 1), tonumber(ARGV[5]), tonumber(ARGV[6])
	local answer, n, index = {'ok', '0'}, 2, nil
	if ARGV[3] ~= '' then
		index = call('ZREVRANGEBYLEX', KEYS[8], '(' .. ARGV[3] .. format(':%016.0f', before), '[' .. ARGV[3] .. ':', 'LIMIT', 0, max)
	end
	for i = 1, max do
		local number = before - i
		if index then number = index[i] and tonumber(match(index[i], ':(%d+)$')) or 0 end
		if number < oldest then return answer end
		local event = call('HGET', KEYS[7], text(number))
		if not event then return {'damaged', KEYS[7] .. ' has no event ' .. text(number)} end
		answer[n + 1], answer[n + 2], n, budget = text(number), event, n + 2, budget - #event
		if budget <= 0 then break end
	end
	answer[2] = '1'
	return answer
end

return ({commit = commit, changes = changes, history = history})[ARGV[2]]()
