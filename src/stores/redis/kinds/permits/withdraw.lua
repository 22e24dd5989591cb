-- Returns the permits that an in-doubt request may have taken.
--
-- KEYS[1]  the semaphore: the number of free permits
-- KEYS[2]  the owners of taken permits
-- ARGV[1]  the visitor, which begins with the number of its permits: `permits*…`
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the server still accepts the in-doubt request
--
-- Keeps: no permit is returned twice. Works at maxmemory.

-- include owners.lua

-- include withdraw_permits.lua
