-- Sets the lowered count of a hold. If a server at maxmemory refuses this, the level counts as released nevertheless: the
-- last release frees the hold whatever its count is.
local counted = pcall('HSET', key, visitor, wanted)
if type(counted) == 'table' and not string.find(counted.err, 'OOM', 1, true) then
    return counted
end
