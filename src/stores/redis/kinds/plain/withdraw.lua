-- Releases the hold that an in-doubt request may have left.
--
-- KEYS[1]  the lock
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the server still accepts the in-doubt request
--
-- Keeps: only the visitor's own field is deleted.

-- include clock.lua
-- While the slot of the key moves, a Cluster node replies with an error if the key is missing. So an error is treated
-- as a missing key.
if call('HDEL', key, ARGV[1]) == 1 and pcall('EXISTS', key) ~= 1 then
    pcall('PUBLISH', ARGV[2], '0')
end
return {number, now}
