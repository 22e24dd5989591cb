
-- include clock.lua
local members, there = members_of(ARGV[1]), {}
for _, member in ipairs(members) do
    local ends = pcall('ZSCORE', KEYS[2], member)
    if type(ends) == 'table' then
        return string.find(ends.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or ends
    elseif ends and (is_owned or ends + 0 > now) then
        there[#there + 1] = member
    end
end
if #there == 0 then
    return {number, {0, ''}}
end
local free = pcall('GET', key)
if type(free) == 'table' and not string.find(free.err, 'WRONGTYPE', 1, true) then
    return free
elseif free and not string.find(type(free) == 'string' and free or '', '^%-?%d+$') then
    return {number, {0, 'a key of another type'}}
elseif not free then
    -- The semaphore is gone, so its permits are only deleted.
    pcall('ZREM', KEYS[2], unpack(there))
    return {number, {0, ''}}
end
-- Checks the right to ZREM. After ZREM, a server at maxmemory accepts the following writes of the script.
local may = pcall('ZREM', KEYS[2], '')
if type(may) == 'table' then
    return may
end
free = pcall('INCRBY', key, permits_of(there))
if type(free) == 'table' then
    return free
end
pcall('ZREM', KEYS[2], unpack(there))
local heard = pcall('PUBLISH', ARGV[2], string.format('%.0f', free))
if #there < #members then
    return {number, {0, ''}}
elseif type(heard) == 'table' then
    return {number, {1, heard.err}}
end
return number * 4194304 + math.min(heard, 4194303)
