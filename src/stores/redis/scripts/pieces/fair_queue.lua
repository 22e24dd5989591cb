-- Those who wait for a fair lock stand in a list, in the order in which they came. A sorted set has for each of them the time,
-- ms, from which on it counts as dead. Each listens to a channel of its own.

-- Whether a waiter is one of this library, whose visitors have the number of a hold at the end.
local function is_ours(waiter)
    return string.find(waiter, ':%d+:%d+$') ~= nil
end

-- The first who waits, false if nobody does. Before it, all but `me` go that are dead; one without a time is dead, too. Where
-- `call` hands errors out, it may be one.
local function first_of(call, queue, times, me, now)
    local first = call('LINDEX', queue, 0)
    while first and first ~= me and type(first) == 'string' do
        local ends = call('ZSCORE', times, first)
        if type(ends) == 'string' and ends + 0 > now then
            return first
        end
        local gone = call('LPOP', queue)
        if type(gone) ~= 'string' then
            return gone
        end
        call('ZREM', times, first)
        first = call('LINDEX', queue, 0)
    end
    if not first and call('EXISTS', times) == 1 then
        call('DEL', times)
    end
    return first
end

-- Takes the time of one that left off that of others, who have one fewer before them: each of them, and until when it counts as
-- alive. A place may be left more often than it was paid for, as late copies take it once more, so nobody is left with less than
-- half of a patience by that.
local function take_time(times, others, patience, now)
    local least = now + (patience - patience % 2) / 2
    for at = 1, #others, 2 do
        local ends = others[at + 1] + 0
        if ends > least then
            redis.pcall('ZADD', times, string.format('%.0f', math.max(ends - patience, least)), others[at])
        end
    end
end

-- Tells the first who waits that the lock is free. If it does not hear of it, the first of this library who does looks at once.
-- Returns an error, if there is one.
local function tell_first(queue, times, base, now)
    local first = first_of(redis.pcall, queue, times, nil, now)
    if type(first) ~= 'string' then
        return first
    end
    local heard = redis.pcall('PUBLISH', base .. ':' .. first, '0')
    for _, waiter in ipairs(heard == 0 and redis.pcall('LRANGE', queue, 1, 31) or {}) do
        if heard == 0 and is_ours(waiter) then
            heard = redis.pcall('PUBLISH', base .. ':' .. waiter, '0')
        end
    end
    return heard
end
