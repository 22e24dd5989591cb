-- Releases the hold and removes the queue entry that an in-doubt request of a reader or a writer may have left.
--
-- KEYS[1]  the lock
-- KEYS[2]  the TTL key of the visitor
-- KEYS[3]  the queue entries of the waiters
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the server still accepts the in-doubt request
--
-- Keeps: unexpired holds of other visitors are unchanged. Works at maxmemory.

-- include sides.lua
-- include turns.lua
-- include leave_side.lua

-- include clock.lua
local message, told, refused
if redis.pcall('ZREM', KEYS[3], ARGV[1]) == 1 and (is_writer(ARGV[1]) or redis.pcall('EXISTS', KEYS[1]) == 0) then
    -- The visitor's queue entry may have kept other waiters from acquiring the lock, so they are notified.
    message = '1'
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    told, refused = leave(KEYS[1], KEYS[2], ARGV[1], KEYS[3])
    if refused then
        return refused
    end
end
if message or told then
    redis.pcall('PUBLISH', ARGV[2], message or told)
end
return {number, now}
