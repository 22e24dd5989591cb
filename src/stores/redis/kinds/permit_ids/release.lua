-- Gives back the permits of a handle that have not ended, and wakes those who wait.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the ids of those that were taken, each with its end, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits, 32 hexadecimal digits each
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns number * 4194304 + n  all were given back; n clients, at most 4194303, have heard of it
--         {1, error}  all were given back, but the message could not be published
--         {0, holder} some were not there any more, and the others were given back; holder is '', or what a key has become
--
-- Keeps: permits are given back once, also to a full server.

-- include id_of.lua

local number = ARGV[3] + 0
local call, key, taken = redis.pcall, KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local wanted, there = 0, {}
for hex in string.gmatch(ARGV[1], string.rep('%x', 32)) do
    local id = id_of(hex)
    local ends = call('ZSCORE', taken, id)
    if type(ends) == 'table' then
        return string.find(ends.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or ends
    elseif ends and ends + 0 > now then
        there[#there + 1] = id
    end
    wanted = wanted + 1
end
if #there == 0 then
    return {number, {0, ''}}
end
local free = call('GET', key)
if type(free) == 'table' and not string.find(free.err, 'WRONGTYPE', 1, true) then
    return free
elseif free and not string.find(type(free) == 'string' and free or '', '^%-?%d+$') then
    return {number, {0, 'a key of another type'}}
elseif not free then
    -- The semaphore is gone, and owes nobody anything.
    call('ZREM', taken, unpack(there))
    return {number, {0, ''}}
end
-- Whether this user may remove anything; behind it a full server takes what follows.
local may = call('ZREM', taken, '')
if type(may) == 'table' then
    return may
end
free = call('INCRBY', key, #there)
if type(free) == 'table' then
    return free
end
call('ZREM', taken, unpack(there))
local heard = call('PUBLISH', ARGV[2], string.format('%.0f', free))
if #there < wanted then
    return {number, {0, ''}}
elseif type(heard) == 'table' then
    return {number, {1, heard.err}}
end
return number * 4194304 + (heard < 4194304 and heard or 4194303)
