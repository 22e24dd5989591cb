-- Returns whether a side of a read-write lock is held, and the count of a visitor.
--
-- KEYS[1]  the lock
-- KEYS[2]  the TTL key of the visitor
-- ARGV[1]  a visitor, or ''
-- ARGV[2]  the mode that is queried, 'read' or 'write'
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {exists, count, ttl}: exists is 1 if the side is held, else 0; count is the visitor's hold count, '' without
--           a hold; ttl is the TTL of the lock in ms, -1 without a TTL, -2 if the side is not held

-- include sides.lua

local number = ARGV[3] + 0
local call, key = redis.call, KEYS[1]
local mode, flaw = mode_of(key)
if flaw then
    return flaw
end
-- In write mode, the read side is held if the writer's thread also reads. The hash then has at least three fields.
if not mode or mode ~= ARGV[2] and (mode == 'read' or call('HLEN', key) < 3) then
    return {number, {0, '', -2}}
end
local count = ARGV[1] ~= '' and call('HGET', key, ARGV[1])
if ARGV[2] == 'read' and count and call('EXISTS', KEYS[2]) == 0 then
    count = false
end
return {number, {1, string.sub(count or '', 1, 32), call('PTTL', key)}}
