-- Changes the format of the database if it is the expected one.
--   KEYS  the format keys   ARGV  1 the expected format   2 the new one
-- Answers the format that the database has afterwards.
for _, key in ipairs(KEYS) do
	local found = redis.call('GET', key)
	if found and found ~= ARGV[1] then return found end
end
-- Set missing keys too: an older gateway that finds one missing would start that half of the store in its own format.
for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[2]) end
return ARGV[2]
