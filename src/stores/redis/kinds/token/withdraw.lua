-- Frees what a request without an answer may have left.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  the channel of unlock messages, which this kind of lock does not use
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: only the key with our own token goes.

-- include clock.lua
if call('GET', key) == ARGV[1] then
    call('DEL', key)
end
return {number, now}
