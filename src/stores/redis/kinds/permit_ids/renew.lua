-- Renews the leases of the permits of many handles at once.
--
-- KEYS[2i-1]            a semaphore
-- KEYS[2i]              the ids of its permits that were taken
-- ARGV[2i-1], ARGV[2i]  the visitor of KEYS[2i], the ids of its permits, and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which comes before the answer: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  done; the i-th handle was not renewed: what is 0 if it lacks a permit, or what a key has
--                               become. It was renewed if what is above 0: the semaphore ends in so many ms, before the
--                               lease
--
-- Keeps: only what is taken, of a semaphore that is there, is given a new end, also on a full server.

-- include ids.lua

-- include renew_permits.lua
