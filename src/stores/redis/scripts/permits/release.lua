-- Gives permits back, and wakes those who wait.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the owners of those that were taken
-- ARGV[1]  the visitor, which begins with its permits: `permits*…`
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns number * 4194304  given back
--         {1, error}  given back, but the message could not be published
--         {0, holder} the visitor owns none; holder is '', or what a key has become
--
-- Keeps: permits are given back once. On a full server nothing is changed.

local number = ARGV[3] + 0
local call, key, owners, visitor = redis.pcall, KEYS[1], KEYS[2], ARGV[1]
local has = call('ZSCORE', owners, visitor)
if type(has) == 'table' then
    return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or has
elseif not has then
    return {number, {0, ''}}
end
local free = call('GET', key)
if type(free) == 'table' then
    return string.find(free.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or free
elseif not free then
    -- The semaphore is gone, and owes nobody anything.
    call('ZREM', owners, visitor)
    return {number, {0, ''}}
end
local permits = string.match(visitor, '^(%d+)%*') + 0
free = call('INCRBY', key, permits)
if type(free) == 'table' then
    return free
end
local gone = call('ZREM', owners, visitor)
if type(gone) == 'table' then
    call('INCRBY', key, -permits)
    return gone
end
local heard = call('PUBLISH', ARGV[2], string.format('%.0f', free))
if type(heard) == 'table' then
    return {number, {1, heard.err}}
end
return number * 4194304
