-- Removes a visitor from the queue of a fair lock. Releases the hold that an in-doubt request may have left.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  for each waiter, the time from which on it counts as dead
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of a waiter, without the suffix `:visitor`
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the server still accepts the in-doubt request
--
-- Keeps: only the visitor's own field, its queue entry and dead waiters are removed. Works at maxmemory.

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
-- While the slot of the key moves, a Cluster node replies with an error if the key is missing. So an error is treated
-- as a missing key.
if opens and pcall('EXISTS', key) ~= 1 then
    tell_first(queue, times, ARGV[2], now)
end
return {number, now}
