-- Frees a lock whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now} freed, {0, now} nobody held it, {3, now} too late, nothing was done
--
-- Keeps: what is no lock of this kind is left alone.

-- include holder_of.lua

-- include in_time.lua
-- include evict.lua
redis.pcall('PUBLISH', ARGV[1], '0')
return {number, {1, now}}
