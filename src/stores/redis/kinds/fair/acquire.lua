-- Acquires a fair lock, or re-enters it. A refused visitor joins the queue, if it requested a position.
--
-- KEYS[1]  the lock: a hash of one visitor and its hold count
-- KEYS[2]  the queue: a list of waiters
-- KEYS[3]  for each waiter, the time from which on it counts as dead, and its last request: see fair_queue.lua
-- ARGV[1]  the visitor
-- ARGV[2]  the lease, ms
-- ARGV[3]  the expected count; 0 to begin a hold
-- ARGV[4]  the count wanted
-- ARGV[5]  the channel of a waiter, without the suffix `:visitor`
-- ARGV[6]  the requested position: 'join' at the end of the queue, 'rejoin' at the former position, 'never' or 'barge'
--          for none
-- ARGV[7]  the patience: how much longer a waiter counts as alive than the waiter before it, ms
-- ARGV[8]  '1' if the server knows all subscribers of a channel, '0' if some may be at other servers
-- ARGV[9]  the server time after which the request is refused, ms since 1970
-- ARGV[10]  the number of the request, which precedes the reply: {number, …}
--
-- Returns as plain/acquire.lua: a number if granted, {2, now, holder}, {3, now}, {4, now, count}, or
--         {0, now, ttl, holder, pause}  refused. If the lock is free, ttl is 1000, and holder is the first waiter. A
--         visitor in the queue has to send its next request within pause ms. 'never' and 'barge' get no pause.
--
-- Keeps: the key of a hold always has a TTL. A repeated first request changes no count and shortens no lease. A visitor has
-- one queue entry. A request that a server at maxmemory refuses may only remove dead waiters.

-- include in_time.lua
local queue, times = KEYS[2], KEYS[3]
local visitor, known, wanted, base, wish, patience = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7] + 0

-- include holder_of.lua

-- include fair_queue.lua

if known ~= '0' then
    -- include enter_again.lua
end

local granted = number * 4194304 + math.min(expiry - now, 4194303)
local is_held, holder = call('EXISTS', key) == 1, nil
if is_held then
    if call('HEXISTS', key, visitor) == 1 then
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

-- Returns how much longer the first waiter of a free lock counts as alive, ms. Notifies the waiter again, because the first
-- message may have been lost. Without the right to PUBLISH, all waiters count as subscribed.
local function left_of(waiter, ends, is_behind_dead)
    local heard = pcall('PUBLISH', base .. ':' .. waiter, '0') ~= 0 or ARGV[8] ~= '1'
    if heard and not is_ours(waiter) then
        return 1000
    end
    local silence = silence_of(ends, now)
    if not silence then
        if is_behind_dead and not heard then
            return 0
        end
        pcall('ZADD', times, time_of(ends, now), waiter)
    end
    return (heard and 10000 or 1500) - (silence or 0)
end

local first, rest = first_of(call, queue, times, visitor, now, not is_held and left_of)
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
    end
    return granted
end

local ttl = is_held and call('PTTL', key) or 1000
holder = holder or string.sub(first, 1, 128)
if wish ~= 'join' and wish ~= 'rejoin' then
    return {number, {0, now, ttl, holder}}
end
local ends, length = call('ZSCORE', times, visitor), call('LLEN', queue)
local is_in = ends and true
if length ~= call('ZCARD', times) or not ends and wish == 'rejoin' then
    -- The queue or the set of times may have lost entries, so the visitor is looked up in the queue.
    is_in = false
    for _, waiter in ipairs(call('LRANGE', queue, 0, -1)) do
        is_in = is_in or waiter == visitor
    end
end
-- Other clients remove only the first waiter of the queue. So a waiter that rejoins after its removal was the first.
local is_first = first == visitor or not is_in and wish == 'rejoin'
local place = is_first and 1 or is_in and call('LINDEX', queue, 1) == visitor and 2 or is_in and length or length + 1
call('ZADD', times, time_of(now + patience * place, now), visitor)
if not is_in then
    if is_first then
        call('LPUSH', queue, visitor)
    else
        call('RPUSH', queue, visitor)
    end
end
if not is_in or not ends then
    call('PEXPIRE', queue, 86400000)
    call('PEXPIRE', times, 86400000)
end
local pause = 1000
if not is_held then
    pause = math.max(50, math.min(rest or 1000, 1000))
elseif place > 2 and (ARGV[8] ~= '1' or (pcall('PUBSUB', 'NUMSUB', base .. ':' .. visitor)[2] or 0) ~= 0) then
    -- Behind the second position, a waiter that may be subscribed polls only every 3 s.
    pause = 3000
end
return {number, {0, now, ttl, holder, pause}}
