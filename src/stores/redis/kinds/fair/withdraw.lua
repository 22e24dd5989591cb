-- Takes a visitor out of the queue of a fair lock, and frees what a request without an answer may have left of its hold.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait
-- KEYS[3]  the times from which on they count as dead
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, behind which stand ':' and a visitor
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: only the visitor's own field and place go. Works on a server that is full.

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
-- A cluster node whose slot is on the move does not answer for a key that is gone.
if opens and pcall('EXISTS', key) ~= 1 then
    tell_first(queue, times, ARGV[2], now)
end
return {number, now}
