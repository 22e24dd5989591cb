-- Gives back the permits of a handle that have not ended, and wakes those who wait.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the ids of those that were taken, each with its end, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits, 32 hexadecimal digits each
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns number * 4194304 + n  all were given back; n clients, at most 4194303, have heard of it
--         {1, error}  all were given back, but the message could not be published
--         {0, holder} some were not there any more, and the others were given back; holder is '', or what a key has become
--
-- Keeps: permits are given back once, also to a full server.

-- include ids.lua

-- include return_permits.lua
