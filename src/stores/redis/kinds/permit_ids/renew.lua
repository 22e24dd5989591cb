-- Renews the leases of the permits of many visitors at once.
--
-- KEYS[2i-1]            a semaphore
-- KEYS[2i]              the ids of its taken permits
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i], the ids of its permits, and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which precedes the reply: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  renewed, except as listed. what is 0 if the i-th permits or their semaphore are gone,
--           and a text if a key is no semaphore. Above 0: renewed, but only for what ms: the semaphore expires then
--
-- Keeps: only taken permits of an existing semaphore are renewed. Works at maxmemory.

-- include ids.lua

-- include renew_permits.lua
