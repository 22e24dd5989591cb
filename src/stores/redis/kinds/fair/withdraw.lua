-- Removes a visitor from the queue of a fair lock, and releases what an in-doubt request may have left of its hold.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the times from which on waiters count as dead
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, to be followed by ':' and a visitor
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the in-doubt request can still arrive
--
-- Keeps: only the visitor's own field and queue entry are removed. Works at maxmemory.

-- include fair_queue.lua

-- include clock.lua
local queue, times, visitor = KEYS[2], KEYS[3], ARGV[1]
local freed = pcall('HDEL', key, visitor)
local opens = freed == 1 or call('LINDEX', queue, 0) == visitor
call('LREM', queue, 0, visitor)
call('ZREM', times, visitor)
if type(freed) == 'table' then
    return freed
end
-- While the slot of the key moves, a Cluster node replies with an error if the key is missing. So an error means a missing
-- key.
if opens and pcall('EXISTS', key) ~= 1 then
    tell_first(queue, times, ARGV[2], now)
end
return {number, now}
