
-- include clock.lua
local taken, there = KEYS[2], {}
for _, member in ipairs(members_of(ARGV[1])) do
    if call('ZSCORE', taken, member) then
        there[#there + 1] = member
    end
end
if #there > 0 then
    -- Checks the right to ZREM. After ZREM, a server at maxmemory accepts the following writes of the script.
    call('ZREM', taken, '')
    local free = pcall('GET', key)
    if type(free) == 'table' and not string.find(free.err, 'WRONGTYPE', 1, true) then
        return free
    elseif type(free) == 'string' and string.find(free, '^%-?%d+$') then
        free = call('INCRBY', key, permits_of(there))
        pcall('PUBLISH', ARGV[2], string.format('%.0f', free))
    end
    call('ZREM', taken, unpack(there))
end
return {number, now}
