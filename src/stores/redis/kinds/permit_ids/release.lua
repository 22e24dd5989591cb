-- Returns the unexpired permits of a visitor, and notifies the waiters.
--
-- KEYS[1]  the semaphore: the number of free permits
-- KEYS[2]  the ids of taken permits, each with its expiry, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits, 32 hexadecimal digits each
-- ARGV[2]  the channel of the semaphore
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304 + n  all permits were returned; n clients, at most 4194303, received the message
--         {1, error}  all permits were returned, but the message could not be published
--         {0, holder} a permit or the semaphore was gone; holder is '', or says that a key is no semaphore
--
-- Keeps: no permit is returned twice. Works at maxmemory.

-- include ids.lua

-- include return_permits.lua
