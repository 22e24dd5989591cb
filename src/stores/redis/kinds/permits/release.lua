-- Gives permits back, and wakes those who wait.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the owners of those that were taken
-- ARGV[1]  the visitor, which begins with its permits: `permits*…`
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns number * 4194304 + n  given back; n clients, at most 4194303, have heard of it
--         {1, error}  given back, but the message could not be published
--         {0, holder} the visitor owns none; holder is '', or what a key has become
--
-- Keeps: permits are given back once, also to a full server.

local number = ARGV[3] + 0
local call, key, owners, visitor = redis.pcall, KEYS[1], KEYS[2], ARGV[1]
local has = call('ZSCORE', owners, visitor)
if type(has) == 'table' then
    return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or has
elseif not has then
    return {number, {0, ''}}
end
local free = call('GET', key)
if type(free) == 'table' and not string.find(free.err, 'WRONGTYPE', 1, true) then
    return free
elseif free and not string.find(type(free) == 'string' and free or '', '^%-?%d+$') then
    return {number, {0, 'a key of another type'}}
elseif not free then
    -- The semaphore is gone, and owes nobody anything.
    call('ZREM', owners, visitor)
    return {number, {0, ''}}
end
-- Whether this user may remove anything; behind it a full server takes what follows.
local may = call('ZREM', owners, '')
if type(may) == 'table' then
    return may
end
free = call('INCRBY', key, string.match(visitor, '^(%d+)%*'))
if type(free) == 'table' then
    return free
end
call('ZREM', owners, visitor)
local heard = call('PUBLISH', ARGV[2], string.format('%.0f', free))
if type(heard) == 'table' then
    return {number, {1, heard.err}}
end
return number * 4194304 + (heard < 4194304 and heard or 4194303)
