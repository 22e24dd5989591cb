-- Returns the permits that an in-doubt request may have taken.
--
-- KEYS[1]  the semaphore: the number of free permits
-- KEYS[2]  the ids of taken permits, each with its expiry, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits, 32 hexadecimal digits each
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the server still accepts the in-doubt request
--
-- Keeps: no permit is returned twice. Works at maxmemory.

-- include ids.lua

-- include withdraw_permits.lua
