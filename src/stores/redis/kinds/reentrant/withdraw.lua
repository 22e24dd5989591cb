-- Frees what a request without an answer may have left.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: only the visitor's own field goes.
local number = ARGV[3] + 0
local time = redis.call('TIME')
-- A cluster node whose slot is on the move does not answer for a key that is gone.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 and redis.pcall('EXISTS', KEYS[1]) ~= 1 then
    redis.pcall('PUBLISH', ARGV[2], '0')
end
return {number, time[1] * 1000 + (time[2] - time[2] % 1000) / 1000}
