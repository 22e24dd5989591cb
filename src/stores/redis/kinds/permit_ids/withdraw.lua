-- Gives back what a request without an answer may have taken.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the ids of those that were taken, each with its end, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits, 32 hexadecimal digits each
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: permits are given back once, also to a full server.

-- include ids.lua

-- include withdraw_permits.lua
