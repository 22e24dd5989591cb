-- Tells how many wait for a fair lock, those among them who are dead and were not passed over yet.
--
-- KEYS[1]  those who wait: a list
-- ARGV[1]  the number of the request, which comes before the answer: {number, …}
--
-- Returns how many there are
--
-- Keeps: nothing is changed.

return {ARGV[1] + 0, redis.call('LLEN', KEYS[1])}
