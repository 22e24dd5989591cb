-- Renews the leases of the permits of many handles at once.
--
-- KEYS[2i-1]            a semaphore
-- KEYS[2i]              the ids of its taken permits
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i], the ids of its permits, and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which precedes the reply: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done. what is 0 if the i-th handle lacks a permit, and an error if a key is no semaphore;
--           neither was renewed. Above 0: renewed, but the semaphore expires in what ms, before the lease
--
-- Keeps: only taken permits of an existing semaphore are renewed. Works at maxmemory.

-- include ids.lua

-- include renew_permits.lua
