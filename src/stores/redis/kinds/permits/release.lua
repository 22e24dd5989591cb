-- Gives permits back, and wakes those who wait.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the owners of those that were taken
-- ARGV[1]  the visitor, which begins with its permits: `permits*…`
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns number * 4194304 + n  given back; n clients, at most 4194303, have heard of it
--         {1, error}  given back, but the message could not be published
--         {0, holder} the visitor owns none; holder is '', or what a key has become
--
-- Keeps: permits are given back once, also to a full server.

-- include owners.lua

-- include return_permits.lua
