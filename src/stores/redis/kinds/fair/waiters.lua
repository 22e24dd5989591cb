-- Tells how many wait for a fair lock, those among them who are dead and were not passed over yet.
--
-- KEYS[1]  the lock: by its first key a proxy finds the server
-- KEYS[2]  those who wait: a list
-- ARGV[1]  the number of the request, which comes before the answer: {number, …}
--
-- Returns how many there are
--
-- Keeps: nothing is changed.

return {ARGV[1] + 0, redis.call('LLEN', KEYS[2])}
