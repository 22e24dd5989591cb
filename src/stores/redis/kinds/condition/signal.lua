-- Signals waiters of a condition, the longest waiting first.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue: waiters by the time of joining, µs since 1970
-- KEYS[3]  the deadline of each waiter's next request, ms since 1970; also of waiters that have sent no request since
--          their signal
-- ARGV[1]  the visitor that has to hold the lock
-- ARGV[2]  the amount: how many waiters to signal at most
-- ARGV[3]  the channels of the waiters, without the suffix `:visitor`
-- ARGV[4]  the server time after which the request is refused, ms since 1970
-- ARGV[5]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, count}   count waiters were signalled
--         {2, now, holder}  the hold is gone; holder holds the lock, or is '' if the lock is free or the holder unknown
--         {3, now}          too late, nothing was done
--
-- Keeps: dead waiters are not counted. Works at maxmemory.

-- include holder_of.lua
-- include places.lua

-- include in_time.lua
-- include gone.lua
local has = pcall('HEXISTS', key, ARGV[1])
if has ~= 1 then
    return gone(has, '')
end
local count, most = 0, ARGV[2] + 0
while count < most and wake_first(KEYS[2], KEYS[3], ARGV[3], now) do
    count = count + 1
end
return {number, {1, now, count}}
