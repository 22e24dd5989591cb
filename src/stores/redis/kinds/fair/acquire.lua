-- Takes a fair lock, or enters it once more. A visitor that waits for it takes its place among those who do.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- KEYS[2]  those who wait: a list
-- KEYS[3]  the times from which on they count as dead: a sorted set, ms since 1970
-- KEYS[4]  since when those are silent who stood before one that looked at the free lock: a hash, ms since 1970, below 0 for
--          those who do not listen; for those of Redisson in µs, before ':' and their time, which tells their waits apart; '' is
--          the time from which on notes of theirs count
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
if has_absent then
    pcall('HDEL', absent, visitor)
    if is_held then
        pcall('HDEL', absent, '')
    end
end

-- Whether anybody listens for a waiter; with `tells` it also hears that the lock is free. Who may not ask takes everybody for
-- alive.
local function is_heard(waiter, tells)
    local channel = base .. ':' .. waiter
    local heard = tells and {channel, pcall('PUBLISH', channel, '0')} or pcall('PUBSUB', 'NUMSUB', channel)
    return heard[2] ~= 0 or ARGV[8] ~= '1'
end

-- Since when a waiter has not looked, as far as is noted; from now on if it is not noted yet, or was in another unit (-1 for
-- those of this library who do not listen), in another wait, before `least`, or by a clock that was set back since.
local function silent_since(waiter, unit, wait, least)
    local noted = pcall('HGET', absent, waiter)
    local since, of = string.match(type(noted) == 'string' and noted or '', '^(-?%d+)(.*)$')
    since = of == wait and since / unit
    if since and since >= least and since <= now then
        return since
    end
    has_absent = true
    -- A note lasts until the next look, be it that of a rare try. One that cannot have an end is not to stand.
    local set = pcall('HSET', absent, waiter, string.format('%.0f', now * unit) .. wait)
    if type(set) ~= 'table' and pcall('PEXPIRE', absent, 3600000) ~= 1 then
        pcall('DEL', absent)
    end
    return now
end

-- Tells the first once more that the lock is free, for a message may have been lost, and takes the silent away, up to the first
-- who may still come. The first 32 are noted at once, so that all of them cost one silence, but behind a first who listens not
-- until that one was silent for a second, so that there are no notes where all come in time.
local pause = 1000
local function pass_over()
    local is_over
    repeat
        is_over = true
        local goes = true
        for place, waiter in ipairs(call('LRANGE', queue, 0, 31)) do
            if waiter == visitor then
                break
            end
            local listens, silence = is_heard(waiter, place == 1), 0
            if is_ours(waiter) then
                silence = now - silent_since(waiter, listens and 1 or -1, '', 1)
            else
                local ends = not listens and call('ZSCORE', times, waiter)
                if ends then
                    -- Its looks clear no note, and its name is that of its other waits, which have other times.
                    local wait = string.format(':%.0f', ends)
                    silence = now - silent_since(waiter, 1000, wait, silent_since('', 1, '', 1))
                else
                    -- One of Redisson looks when it is told, however long that takes; one without a time goes when it is first.
                    pcall('HDEL', absent, waiter)
                end
            end
            local left = (listens and 10000 or 1500) - silence
            if goes and left <= 0 then
                call('LPOP', queue)
                call('ZREM', times, waiter)
                pcall('HDEL', absent, waiter)
                is_over = false
            elseif goes then
                goes, pause = false, math.max(50, math.min(left, 1000))
            end
            if place == 1 and listens and silence < 1000 then
                break
            end
        end
        first = first_of(call, queue, times, visitor, now)
    until is_over
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
    if has_absent and first then
        pcall('HDEL', absent, '')
    elseif has_absent then
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
    if not ends then
        -- It may be the first after a loss.
        call('PEXPIRE', times, 86400000)
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
if is_held and place > 2 and is_heard(visitor) then
    pause = 3000
end
return {number, {0, now, ttl, holder, '', pause}}
