-- Releases one level of a hold. The hold continues.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the lease of the remaining levels, ms
-- ARGV[3]  the expected count
-- ARGV[4]  the count wanted, at least 1
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/acquire.lua: a number if the level was released, else {2, now, holder}, {3, now} or {4, now, count}
--
-- Keeps: the lease is set before the count is lowered.

-- include holder_of.lua

-- include in_time.lua
local visitor, known, wanted = ARGV[1], ARGV[3], ARGV[4]

-- include gone.lua
-- include own_count.lua
call('PEXPIRE', key, ARGV[2])
-- include set_level.lua
return number * 4194304 + math.min(expiry - now, 4194303)
