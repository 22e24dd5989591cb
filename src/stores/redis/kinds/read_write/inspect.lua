-- Tells who holds a read-write lock in one of its modes.
--
-- KEYS[1]  the lock
-- KEYS[2]  the time key of the visitor
-- ARGV[1]  a visitor, or ''
-- ARGV[2]  the mode that is asked for, 'read' or 'write'
-- ARGV[3]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {exists, count, ttl}: count is that of the visitor, '' if it holds nothing; ttl in ms, -1 for ever, -2 for none

-- include sides.lua

local number = ARGV[3] + 0
local call, key = redis.call, KEYS[1]
local mode, flaw = mode_of(key)
if flaw then
    return flaw
end
-- Who writes may read inside.
if not mode or mode ~= ARGV[2] and (mode == 'read' or call('HLEN', key) < 3) then
    return {number, {0, '', -2}}
end
local count = ARGV[1] ~= '' and call('HGET', key, ARGV[1])
if ARGV[2] == 'read' and count and call('EXISTS', KEYS[2]) == 0 then
    count = false
end
return {number, {1, string.sub(count or '', 1, 32), call('PTTL', key)}}
