-- Sets the lowered count of a hold. If a server at maxmemory refuses the new count, the script continues, because the
-- release of the last level deletes the hold whatever its count is.
local counted = pcall('HSET', key, visitor, wanted)
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
