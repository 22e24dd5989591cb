-- Writes the count of a continuing hold. If a server at maxmemory refuses the write, the level still counts as released,
-- because the last release frees the hold whatever its count is.
local counted = pcall('HSET', key, visitor, ARGV[4])
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
