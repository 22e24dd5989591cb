-- Returns whether a lock is held, and the count of a visitor.
--
-- KEYS[1]  the lock
-- ARGV[1]  a visitor, or ''
-- ARGV[2]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {exists, count, ttl}: exists is 1 if the lock is held, else 0; count is the visitor's hold count, '' without
--           a hold; ttl is in ms, -1 without a TTL, -2 if the lock is free

-- include holder_of.lua

local number = ARGV[2] + 0
local call, key = redis.call, KEYS[1]
local exists, count = call('EXISTS', key), call('HGET', key, ARGV[1])
if exists == 1 and not count then
    local _, flaw = holder_of(key)
    if flaw then
        return flaw
    end
end
return {number, {exists, string.sub(count or '', 1, 32), call('PTTL', key)}}
