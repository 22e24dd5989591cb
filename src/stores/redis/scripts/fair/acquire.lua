-- Takes a fair lock, or enters it once more. A visitor that waits for it takes its place among those who do.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- KEYS[2]  those who wait: a list
-- KEYS[3]  the times from which on they count as dead: a sorted set, ms since 1970
-- KEYS[4]  since when those do not come to whom the lock is free: a hash, ms since 1970
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the count that stands there, as far as the visitor knows; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the channel of unlock messages, behind which stand ':' and a visitor
-- ARGV[6]  the place wanted: 'join' for one behind all others, 'rejoin' for one that it had before, 'never' for none
-- ARGV[7]  the patience: for how long a waiter counts as alive behind the one before it, ms
-- ARGV[8]  '1' if the server knows all who listen to a channel, '0' if some may listen at other servers
-- ARGV[9]  the server time after which the request is refused, ms since 1970
-- ARGV[10]  the number of the request, which comes before the answer: {number, …}
--
-- Returns as acquire.lua: a number granted, {2, now, holder} gone, {3, now} too late, {4, now, count} another count, and
--         {0, now, ttl, holder, '', pause}  refused; holder is whoever has the lock, or is before the visitor while nobody
--         has it; the visitor is to look again after pause ms at the latest
--
-- Keeps: a key of a hold never lacks a time to live. A copy of the first request changes no count, and shortens nothing. A
-- visitor has one place. What a full server refuses comes first, or behind the removal of somebody who is dead.

local number, expiry = ARGV[#ARGV] + 0, ARGV[9] + 0
local call, pcall = redis.call, redis.pcall
local key, queue, times, absent = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local visitor, known, base, wish, patience = ARGV[1], ARGV[3], ARGV[5], ARGV[6], ARGV[7] + 0
local time = call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if now > expiry then
    return {number, {3, now}}
end

-- include holder_of.lua

-- include fair_queue.lua

if known ~= '0' then
    -- include enter_again.lua
end

local left = expiry - now
local granted = number * 4194304 + (left < 4194304 and left or 4194303)
local is_held, holder = call('EXISTS', key) == 1, nil
if is_held then
    if call('HEXISTS', key, visitor) == 1 then
        -- This is a copy of the request that began the hold.
        if call('PTTL', key) < ARGV[2] + 0 then
            call('PEXPIRE', key, ARGV[2])
        end
        return granted
    end
    local flaw
    holder, flaw = holder_of(key)
    if flaw then
        return flaw
    end
end

local first = first_of(call, queue, times, visitor, now)
local has_absent = call('EXISTS', absent) == 1
if has_absent and is_held then
    -- The next time that the lock is free, everybody has as much time again.
    pcall('DEL', absent)
elseif has_absent then
    pcall('HDEL', absent, visitor)
end

-- Notes that a waiter does not come. Returns since when.
local function note_absent(waiter)
    local since = pcall('HGET', absent, waiter)
    since = type(since) == 'string' and tonumber(since)
    if since then
        return since
    end
    has_absent = true
    -- A note that cannot have an end is not to stand.
    local set = pcall('HSET', absent, waiter, string.format('%.0f', now))
    if type(set) ~= 'table' and pcall('PEXPIRE', absent, 60000) ~= 1 then
        pcall('DEL', absent)
    end
    return now
end

-- Tells the first once more that the lock is free, for a message may have been lost, and takes those away who do not come:
-- up to the first who listens, and at most 32.
local function pass_over()
    local told, goes = first, true
    for place, waiter in ipairs(call('LRANGE', queue, 0, 31)) do
        if waiter == visitor then
            break
        end
        local heard
        if place == 1 then
            heard = pcall('PUBLISH', base .. ':' .. waiter, '0')
        else
            heard = pcall('PUBSUB', 'NUMSUB', base .. ':' .. waiter)
            heard = heard[2] or heard
        end
        -- Who may not ask takes everybody for alive.
        local listens = heard ~= 0 or ARGV[8] ~= '1'
        if listens and not is_ours(waiter) then
            pcall('HDEL', absent, waiter)
            break
        end
        local silence = now - note_absent(waiter)
        -- One of this library that listens and is alive looks every few seconds.
        goes = goes and silence >= (listens and 10000 or place == 1 and 1500 or 3500)
        if goes then
            call('LPOP', queue)
            call('ZREM', times, waiter)
            pcall('HDEL', absent, waiter)
        elseif listens then
            break
        end
    end
    first = first_of(call, queue, times, visitor, now)
    if first and first ~= visitor and first ~= told then
        pcall('PUBLISH', base .. ':' .. first, '0')
    end
end

if not is_held and first and first ~= visitor then
    pass_over()
end
if not is_held and (not first or first == visitor) then
    -- include begin_hold.lua
    if first then
        local gone = pcall('LPOP', queue)
        if type(gone) == 'table' then
            if pcall('HDEL', key, visitor) ~= 1 then
                pcall('DEL', key)
            end
            return gone
        end
        pcall('ZREM', times, visitor)
        take_time(times, pcall('ZRANGE', times, 0, -1, 'WITHSCORES'), patience, now)
    end
    if has_absent then
        pcall('DEL', absent)
    end
    return granted
end

local ttl = is_held and call('PTTL', key) or 1000
holder = holder or string.sub(first, 1, 128)
if wish == 'never' then
    return {number, {0, now, ttl, holder}}
end
local ends, length = call('ZSCORE', times, visitor), call('LLEN', queue)
local is_in = ends and true
if length ~= call('ZCARD', times) or not ends and wish == 'rejoin' then
    -- The list, or the set, or a part of it was lost.
    is_in = false
    for _, waiter in ipairs(call('LRANGE', queue, 0, -1)) do
        is_in = is_in or waiter == visitor
    end
end
local place
if is_in then
    place = first == visitor and 1 or call('LINDEX', queue, 1) == visitor and 2 or length
    -- Contention without a pause takes the time of every holder off, and is no reason to be dead.
    local due = now + patience * place
    if not ends or ends + 0 < due - patience / 2 then
        call('ZADD', times, string.format('%.0f', due), visitor)
    end
else
    -- One that was taken away without having left came before all others, for that happens to the first alone.
    local is_first = wish == 'rejoin' and length > 0
    local begins = now + math.max(ttl, 0)
    local next = call('LINDEX', queue, is_first and 0 or -1)
    next = next and call('ZSCORE', times, next)
    if is_first and next and next + 0 < begins + patience * 1.5 then
        -- The times of the others are those without it.
        for _, waiter in ipairs(pcall('ZRANGE', times, 0, -1)) do
            pcall('ZINCRBY', times, patience, waiter)
        end
    elseif not is_first then
        begins = math.max(next and next + 0 or begins, now + patience * length)
    end
    call('ZADD', times, string.format('%.0f', begins + patience), visitor)
    length = length + 1
    if is_first then
        place = 1
        call('LPUSH', queue, visitor)
    else
        place = length
        call('RPUSH', queue, visitor)
    end
    call('PEXPIRE', queue, 86400000)
    call('PEXPIRE', times, 86400000)
end
return {number, {0, now, ttl, holder, '', is_held and place > 2 and 3000 or 1000}}
