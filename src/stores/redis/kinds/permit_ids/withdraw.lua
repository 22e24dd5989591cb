-- Gives back what a request without an answer may have taken.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the ids of those that were taken, each with its end, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits, 32 hexadecimal digits each
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: permits are given back once, also to a full server.

-- include id_of.lua

local number = ARGV[3] + 0
local call, pcall, key, taken = redis.call, redis.pcall, KEYS[1], KEYS[2]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local there = {}
for hex in string.gmatch(ARGV[1], string.rep('%x', 32)) do
    local id = id_of(hex)
    if call('ZSCORE', taken, id) then
        there[#there + 1] = id
    end
end
if #there > 0 then
    -- Whether this user may remove anything; behind it a full server takes what follows.
    call('ZREM', taken, '')
    local free = pcall('GET', key)
    if type(free) == 'table' and not string.find(free.err, 'WRONGTYPE', 1, true) then
        return free
    elseif type(free) == 'string' and string.find(free, '^%-?%d+$') then
        free = call('INCRBY', key, #there)
        pcall('PUBLISH', ARGV[2], string.format('%.0f', free))
    end
    call('ZREM', taken, unpack(there))
end
return {number, now}
