-- Returns permits, and notifies the waiters.
--
-- KEYS[1]  the semaphore: the number of free permits
-- KEYS[2]  the owners of taken permits
-- ARGV[1]  the visitor, which begins with the number of its permits: `permits*…`
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304 + n  returned; n clients, at most 4194303, received the message
--         {1, error}  returned, but the message could not be published
--         {0, holder} the permits or the semaphore are gone; holder is '', or says that a key is no semaphore
--
-- Keeps: no permit is returned twice. Works at maxmemory.

-- include owners.lua

-- include return_permits.lua
