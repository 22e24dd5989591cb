-- Gives a whole hold of a read-write lock back, of a reader or a writer, and wakes those who wait.
--
-- KEYS[1]  the lock
-- KEYS[2]  the time key of the visitor
-- KEYS[3]  the notes on those who wait
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, '' to send none
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as release.lua: number * 4194304 + n freed and n clients have heard of it, {1, error} freed without a message,
--         {0, holder} not held by the visitor
--
-- Keeps: other holds last as long as before. Works on a server that is full.

-- include sides.lua
-- include turns.lua
-- include leave_side.lua

local number = ARGV[3] + 0
local has = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(has) == 'table' then
    return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or has
elseif has == 0 then
    -- That of a hold that was taken away by force.
    redis.pcall('DEL', KEYS[2])
    return {number, {0, holder_of(KEYS[1])}}
end
local message, refused = leave(KEYS[1], KEYS[2], ARGV[1], KEYS[3])
if refused then
    return refused
elseif not message or ARGV[2] == '' then
    return number * 4194304
end
local heard = redis.pcall('PUBLISH', ARGV[2], message)
if type(heard) == 'table' then
    return {number, {1, heard.err}}
end
-- The last reader leaves no turn to others.
return number * 4194304 + (message == '1' and math.min(heard, 4194303) or 0)
