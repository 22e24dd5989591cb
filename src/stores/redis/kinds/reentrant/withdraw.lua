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

-- include clock.lua
-- A cluster node whose slot is on the move does not answer for a key that is gone.
if call('HDEL', key, ARGV[1]) == 1 and pcall('EXISTS', key) ~= 1 then
    pcall('PUBLISH', ARGV[2], '0')
end
return {number, now}
