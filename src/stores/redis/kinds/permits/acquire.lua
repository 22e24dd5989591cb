-- Takes permits of a semaphore, and gives back those whose owners' leases are over.
--
-- KEYS[1]  the semaphore: the permits that are free
-- KEYS[2]  the owners of those that were taken, each with the end of its lease, ms since 1970
-- ARGV[1]  the visitor, which begins with the permits wanted: `permits*…`
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
-- Keeps: the sum of what is free and what is owned. A copy takes nothing, and shortens no lease. A full server refuses the
-- first write. What a user may have no right to comes first, or is undone by a command that has just run.

-- include keep_taken.lua

local number, expiry = ARGV[#ARGV] + 0, ARGV[4] + 0
local call, pcall, key, owners, visitor = redis.call, redis.pcall, KEYS[1], KEYS[2], ARGV[1]
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end
local free = call('GET', key)
if not free then
    -- Its owners are those of a semaphore that is gone.
    local gone = forget_taken(owners)
    return type(gone) == 'table' and gone or {number, {0, now, 1000, ''}}
elseif not string.find(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE this string is no count')
end
local ends, life = string.format('%.0f', now + ARGV[2]), call('PTTL', key)
local function granted()
    if life >= 0 and life < ARGV[2] + 0 then
        return {number, {5, now, life}}
    end
    return number * 4194304 + math.min(expiry - now, 4194303)
end
local has = call('ZSCORE', owners, visitor)
if has then
    if has + 0 < ends + 0 then
        call('ZADD', owners, ends, visitor)
    end
    return granted()
elseif 0 <= life and life <= 2 then
    -- Nothing that ends so soon is valid for a moment.
    keep_taken(owners, key, life)
    return {number, {0, now, 1000, ''}}
end

local function first_end()
    local first = call('ZRANGE', owners, 0, 0, 'WITHSCORES')
    return first[2] and first[2] + 0
end
local next, back = first_end(), 0
if next and next <= now then
    local over = call('ZRANGEBYSCORE', owners, '-inf', string.format('%.0f', now), 'LIMIT', 0, 5000)
    for _, owner in ipairs(over) do
        back = back + (string.match(owner, '^(%d+)%*') or 0)
    end
    free = call('INCRBY', key, back)
    local gone = pcall('ZREM', owners, unpack(over))
    if type(gone) == 'table' then
        call('INCRBY', key, -back)
        return gone
    end
    next = first_end()
end
local wanted = string.match(visitor, '^(%d+)%*') + 0
local is_granted = free + 0 >= wanted
if is_granted then
    free = call('DECRBY', key, wanted)
    local owned = pcall('ZADD', owners, ends, visitor)
    if type(owned) == 'table' then
        call('DECRBY', key, -wanted)
        return owned
    end
end
keep_taken(owners, key, life)
if back > 0 then
    pcall('PUBLISH', ARGV[3], string.format('%.0f', free))
end
if is_granted then
    return granted()
end
return {number, {0, now, next and math.max(math.min(next - now, 1000), 0) or 1000, ''}}
