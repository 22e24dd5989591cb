-- Releases a hold of a reader or a writer with all its levels, and notifies the waiters.
--
-- KEYS[1]  the lock
-- KEYS[2]  the TTL key of the visitor
-- KEYS[3]  the queue entries of the waiters
-- ARGV[1]  the visitor
-- ARGV[2]  the channel of unlock messages, '' to send none
-- ARGV[3]  the number of the request, which precedes the reply: {number, …}
--
-- Returns number * 4194304 + n  released; n clients, at most 4194303, received the message; n is always 0 after the
--           release of the last reader
--         {1, error}   released, but the message could not be published
--         {0, holder}  not held by the visitor; holder as in plain/release.lua
--
-- Keeps: unexpired holds of other visitors are unchanged. Works at maxmemory.

-- include sides.lua
-- include turns.lua
-- include leave_side.lua

local number = ARGV[3] + 0
local has = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(has) == 'table' then
    return string.find(has.err, 'WRONGTYPE', 1, true) and {number, {0, 'a key of another type'}} or has
elseif has == 0 then
    -- A forced release does not delete the TTL key of a hold. The holder's own release deletes this key here.
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
return number * 4194304 + (message == '1' and math.min(heard, 4194303) or 0)
