-- Gives back what a request without an answer may have taken.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the owners of those that were taken
-- ARGV[1]  the visitor, which begins with its permits: `permits*…`
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: permits are given back once, also to a full server.

local number = ARGV[3] + 0
local call, pcall, key, owners, visitor = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[1]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if call('ZSCORE', owners, visitor) then
    -- Whether this user may remove anything; behind it a full server takes what follows.
    call('ZREM', owners, '')
    local free = pcall('GET', key)
    if type(free) == 'table' and not string.find(free.err, 'WRONGTYPE', 1, true) then
        return free
    elseif type(free) == 'string' and string.find(free, '^%-?%d+$') then
        free = call('INCRBY', key, string.match(visitor, '^(%d+)%*'))
        pcall('PUBLISH', ARGV[2], string.format('%.0f', free))
    end
    call('ZREM', owners, visitor)
end
return {number, now}
