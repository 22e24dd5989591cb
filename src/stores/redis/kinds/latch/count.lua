-- Counts a latch down, sets it, tells its count or takes it away; each request once, whatever copies of it come.
--
-- KEYS[1]  the latch: its count; it is open if the key is missing
-- KEYS[2]  the answer to this request, if it was carried out before; it is left out of 'get', which changes nothing
-- ARGV[1]  the operation: 'down', 'set', 'get' or 'delete'
-- ARGV[2]  the amount: the count to set
-- ARGV[3]  the channel of the latch
-- ARGV[4]  the lease of KEYS[2], ms, which outlasts all copies of the request
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which comes before the answer: {number, …}
--
-- Returns {1, now, answer}  done; of 'down' and 'get' the count that is left, of 'set' and 'delete' 1 if it was done, else 0
--         {3, now}          too late, nothing was done
--
-- Keeps: the answer stands before the count changes, so a full server refuses both. A latch that is open has no key.

-- include in_time.lua
local latch, once, op = KEYS[1], KEYS[2], ARGV[1]
local count = call('GET', latch)
if count and not string.find(count, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE this string is no count')
end
-- Redisson's counts may be larger than any number of a reply can be.
local left = math.min(math.max((count or 0) - (op == 'down' and 1 or 0), 0), 9007199254740991)
if op == 'get' then
    return {number, {1, now, left}}
end
local before = call('GET', once)
if before then
    return {number, {1, now, before + 0}}
end
local answer, changes = left, count
if op == 'set' then
    changes = not count
end
if op ~= 'down' then
    answer = changes and 1 or 0
end
call('SET', once, string.format('%.0f', answer), 'PX', ARGV[4])
if not changes then
    return {number, {1, now, answer}}
end
local done, message
if op == 'set' then
    done, message = pcall('SET', latch, ARGV[2]), '1'
elseif op == 'down' and left > 0 then
    done = pcall('DECRBY', latch, 1)
else
    done, message = pcall('DEL', latch), '0'
end
if type(done) == 'table' and done.err then
    -- A user without the right to it may ask again.
    pcall('DEL', once)
    return done
end
if message then
    pcall('PUBLISH', ARGV[3], message)
end
return {number, {1, now, answer}}
