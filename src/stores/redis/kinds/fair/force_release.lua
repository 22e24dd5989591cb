-- Releases a fair lock, whoever holds it, and notifies the first waiter.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  for each waiter, the time from which on it counts as dead
-- ARGV[1]  the channel of a waiter, without the suffix `:visitor`
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now} freed, {0, now} the lock was free, {3, now} too late, nothing was done
--
-- Keeps: a key that is not a lock of this kind is unchanged.

-- include holder_of.lua

-- include fair_queue.lua

-- include in_time.lua
-- include evict.lua
tell_first(KEYS[2], KEYS[3], ARGV[1], now)
return {number, {1, now}}
