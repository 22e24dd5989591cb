-- Frees a fair lock whoever holds it, and tells the first who waits.
--
-- KEYS[1]  the lock
-- KEYS[2]  those who wait
-- KEYS[3]  the times from which on they count as dead
-- ARGV[1]  the channel of unlock messages, behind which stand ':' and a visitor
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now} freed, {0, now} nobody held it, {3, now} too late, nothing was done
--
-- Keeps: what is no lock of this kind is left alone.

-- include holder_of.lua

-- include fair_queue.lua

-- include in_time.lua
-- include evict.lua
tell_first(KEYS[2], KEYS[3], ARGV[1], now)
return {number, {1, now}}
