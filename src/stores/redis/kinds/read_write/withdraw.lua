-- Frees what a request without an answer may have left of a hold of a reader or a writer.
--
-- KEYS[1]  the lock
-- KEYS[2]  the time key of the visitor
-- KEYS[3]  the notes on those who wait to write
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: other holds last as long as before. Works on a server that is full.

-- include sides.lua
-- include leave_side.lua

local number = ARGV[3] + 0
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local message, refused
if string.sub(ARGV[1], -6) == ':write' and redis.pcall('HDEL', KEYS[3], ARGV[1]) == 1 then
    -- Readers need not wait for it any more.
    message = '1'
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    local told
    told, refused = leave(KEYS[1], KEYS[2], ARGV[1])
    if refused then
        return refused
    end
    if string.sub(ARGV[1], -6) == ':write' then
        open_window(KEYS[3], now)
    end
    message = message or told
end
if message then
    redis.pcall('PUBLISH', ARGV[2], message)
end
return {number, now}
