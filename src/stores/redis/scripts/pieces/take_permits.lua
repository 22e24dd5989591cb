
-- include keep_taken.lua

-- include in_time.lua
local taken, members = KEYS[2], members_of(ARGV[1])
local free = call('GET', key)
if not free then
    -- The semaphore is gone, so its taken permits are deleted.
    local gone = forget_taken(taken)
    return type(gone) == 'table' and gone or {number, {0, now, 1000, ''}}
elseif not string.find(free, '^%-?%d+$') then
    return redis.error_reply('WRONGTYPE this string is no count')
end
local ends, life = end_of(now, ARGV[2]), call('PTTL', key)
local function granted()
    if life >= 0 and life < ARGV[2] + 0 then
        return {number, {5, now, life}}
    end
    return number * 4194304 + math.min(expiry - now, 4194303)
end
local has = call('ZSCORE', taken, members[1])
if has then
    -- The expiry of a permit with an id is kept, because another client may have set it.
    if is_owned and has + 0 < ends + 0 then
        call('ZADD', taken, ends, members[1])
    end
    return granted()
elseif 0 <= life and life <= 2 then
    -- The semaphore expires before its permits could be used.
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
    back = permits_of(over)
    free = call('INCRBY', key, back)
    local gone = pcall('ZREM', taken, unpack(over))
    if type(gone) == 'table' then
        call('INCRBY', key, -back)
        return gone
    end
    next = first_end()
end
local wanted = permits_of(members)
local is_granted = free + 0 >= wanted
if is_granted then
    free = call('DECRBY', key, wanted)
    local added = pcall('ZADD', taken, unpack(scored(members, ends)))
    if type(added) == 'table' then
        call('DECRBY', key, -wanted)
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
