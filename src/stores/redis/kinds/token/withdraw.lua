-- Releases the hold that an in-doubt request may have left.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the channel of unlock messages, which this kind of lock does not use
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns now, the server time in ms since 1970. It shows whether the server still accepts the in-doubt request
--
-- Keeps: only a key with this token is deleted.

-- include clock.lua
if call('GET', key) == ARGV[1] then
    call('DEL', key)
end
return {number, now}
