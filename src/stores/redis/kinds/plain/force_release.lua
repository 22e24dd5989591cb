-- Releases a lock, whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the channel of unlock messages
-- ARGV[2]  the server time after which the request is refused, ms since 1970
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now} freed, {0, now} the lock was free, {3, now} too late, nothing was done
--
-- Keeps: a key that is not a lock of this kind is unchanged.

-- include holder_of.lua

-- include in_time.lua
-- include evict.lua
redis.pcall('PUBLISH', ARGV[1], '0')
return {number, {1, now}}
