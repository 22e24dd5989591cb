-- Returns the length of the queue of a fair lock, including dead waiters that were not removed yet.
--
-- KEYS[1]  the lock, which some proxies need: they choose the server by the first key
-- KEYS[2]  the queue: a list of waiters
-- ARGV[1]  the number of the request, which precedes the reply: {number, …}
--
-- Keeps: nothing is changed.

return {ARGV[1] + 0, redis.call('LLEN', KEYS[2])}
