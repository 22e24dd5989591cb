-- Frees what a request without an answer may have left of a hold of a reader or a writer, or of its wait.
--
-- KEYS[1]  the lock
-- KEYS[2]  the time key of the visitor
-- KEYS[3]  the notes on those who wait
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns now, the server time in ms since 1970, by which the caller knows whether the request can still come
--
-- Keeps: other holds last as long as before. Works on a server that is full.

-- include sides.lua
-- include turns.lua
-- include leave_side.lua

-- include clock.lua
local message, told, refused
if redis.pcall('ZREM', KEYS[3], ARGV[1]) == 1 and (is_writer(ARGV[1]) or redis.pcall('EXISTS', KEYS[1]) == 0) then
    -- Others need not wait for it any more.
    message = '1'
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    told, refused = leave(KEYS[1], KEYS[2], ARGV[1], KEYS[3])
    if refused then
        return refused
    end
end
if message or told then
    redis.pcall('PUBLISH', ARGV[2], message or told)
end
return {number, now}
