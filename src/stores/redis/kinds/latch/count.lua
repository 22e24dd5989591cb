-- Counts a latch down, or sets, returns or deletes its count. A repeated request is executed once.
--
-- KEYS[1]  the latch: its count; it is open if the key is missing
-- KEYS[2]  the stored reply to this request, if it was executed before; left out for 'get', which changes nothing
-- ARGV[1]  the operation: 'down', 'set', 'get' or 'delete'
-- ARGV[2]  the amount: the count to set
-- ARGV[3]  the channel of the latch
-- ARGV[4]  the lease of KEYS[2], ms; longer than the server accepts a repetition of the request
-- ARGV[5]  the server time after which the request is refused, ms since 1970
-- ARGV[6]  the number of the request, which precedes the reply: {number, …}
--
-- Returns {1, now, answer}  done; answer is the count for 'down' and 'get'; for 'set' and 'delete' 1 if it was done, else 0
--         {3, now}          too late, nothing was done
--
-- Keeps: the reply is stored before the count changes, so a server at maxmemory refuses both. An open latch has no key.

-- include in_time.lua
local latch, once, op = KEYS[1], KEYS[2], ARGV[1]
local count = call('GET', latch)
if count and not string.find(count, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE this string is no count')
end
-- A count that Redisson has set may exceed the range in which Lua represents every integer.
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
    -- The change failed, for example for lack of a right. The stored reply is deleted, so that the user can send the
    -- request again.
    pcall('DEL', once)
    return done
end
if message then
    pcall('PUBLISH', ARGV[3], message)
end
return {number, {1, now, answer}}
