-- Writes the count of a hold that goes on. A server at `maxmemory` refuses that. The level is released all the same, and the last
-- release frees any count.
local counted = pcall('HSET', key, visitor, ARGV[4])
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
