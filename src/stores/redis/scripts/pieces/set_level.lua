-- Writes the count of a continuing hold. If a server at maxmemory refuses it, the level is released all the same: the
-- last release frees any count.
local counted = pcall('HSET', key, visitor, ARGV[4])
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
