-- Takes permits of a semaphore under ids of their own, and gives back those that have ended.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the ids of those that were taken, each with its end, ms since 1970
-- ARGV[1]  the visitor: the ids of the permits wanted, 32 hexadecimal digits each
-- ARGV[2]  the lease, ms
-- ARGV[3]  the channel of the semaphore
-- ARGV[4]  the server time after which the request is refused, ms since 1970
-- ARGV[5]  the number of the request, which comes before the answer: {number, …}
--
-- Returns number * 4194304 + left  granted; left is the time until ARGV[4], ms, at most 4194303
--         {5, now, life}  granted; the semaphore ends in life ms, before the lease
--         {0, now, ttl, ''}  refused; it is worth to ask again in ttl ms, if no message comes before
--         {3, now}           too late, nothing was done
--
-- Keeps: the sum of what is free and what is taken. A copy takes nothing, and changes no end, which others may have set. A
-- full server refuses the first write. What a user may have no right to comes first, or is undone by a command that has just
-- run.

-- include id_of.lua
-- include keep_taken.lua

local number, expiry = ARGV[#ARGV] + 0, ARGV[4] + 0
local call, pcall, key, taken = redis.call, redis.pcall, KEYS[1], KEYS[2]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end
local free = call('GET', key)
if not free then
    -- What was taken is of a semaphore that is gone.
    local gone = forget_taken(taken)
    return type(gone) == 'table' and gone or {number, {0, now, 1000, ''}}
elseif not string.find(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE this string is no count')
end
local life = call('PTTL', key)
local function granted()
    if life >= 0 and life < ARGV[2] + 0 then
        return {number, {5, now, life}}
    end
    return number * 4194304 + math.min(expiry - now, 4194303)
end
local ids = {}
for hex in string.gmatch(ARGV[1], string.rep('%x', 32)) do
    ids[#ids + 1] = id_of(hex)
end
if call('ZSCORE', taken, ids[1]) then
    return granted()
elseif 0 <= life and life <= 2 then
    -- Nothing that ends so soon is valid for a moment.
    keep_taken(taken, key, life)
    return {number, {0, now, 1000, ''}}
end

local function first_end()
    local first = call('ZRANGE', taken, 0, 0, 'WITHSCORES')
    return first[2] and first[2] + 0
end
local next, back = first_end(), 0
if next and next <= now then
    local over = call('ZRANGEBYSCORE', taken, '-inf', string.format('%.0f', now), 'LIMIT', 0, 5000)
    back = #over
    free = call('INCRBY', key, back)
    local gone = pcall('ZREM', taken, unpack(over))
    if type(gone) == 'table' then
        call('INCRBY', key, -back)
        return gone
    end
    next = first_end()
end
local is_granted = free + 0 >= #ids
if is_granted then
    -- The largest end is that of a permit without one.
    local ends, members = string.format('%.0f', math.min(now + ARGV[2], 922337203685477)), {}
    for i, id in ipairs(ids) do
        members[2 * i - 1], members[2 * i] = ends, id
    end
    free = call('DECRBY', key, #ids)
    local added = pcall('ZADD', taken, unpack(members))
    if type(added) == 'table' then
        call('DECRBY', key, -#ids)
        return added
    end
end
keep_taken(taken, key, life)
if back > 0 then
    pcall('PUBLISH', ARGV[3], string.format('%.0f', free))
end
if is_granted then
    return granted()
end
return {number, {0, now, next and math.max(math.min(next - now, 1000), 0) or 1000, ''}}
