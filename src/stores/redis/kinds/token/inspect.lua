-- Returns whether a token lock is held, and whether with this token.
--
-- KEYS[1]  the lock
-- ARGV[1]  a token, or ''
-- ARGV[2]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {exists, count, ttl}: count is '1' if the lock is held with this token, else ''; ttl in ms, -1 without a TTL, -2
--         if the lock is free
local number = ARGV[2] + 0
local holder = redis.call('GET', KEYS[1])
return {number, {
    holder and 1 or 0,
    holder and holder == ARGV[1] and '1' or '',
    redis.call('PTTL', KEYS[1]),
}}
