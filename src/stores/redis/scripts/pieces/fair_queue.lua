-- Those who wait for a fair lock stand in a list, in the order in which they came. A sorted set has for each of them the time,
-- ms, from which on it counts as dead: for one of this library a patience for each place behind its last look, as each holder of
-- Redisson takes one off the times of all. With it stands when it looked last; for one of Redisson since when nobody listens for
-- it. Each listens to a channel of its own.

-- include looks.lua

-- Whether a waiter is one of this library, whose visitors have the number of a hold at the end.
local function is_ours(waiter)
    return string.find(waiter, ':%d+:%d+$') ~= nil
end

-- The first who waits, false if nobody does. Before it, all but `me` go that are dead: one whose time is over, one without a time,
-- and one of which `left_of` says that nothing is left, if that is given, by its time and whether it stands behind a dead one.
-- Also returns what is left of the first. Where `call` hands errors out, the first may be one.
local function first_of(call, queue, times, me, now, left_of)
    local first, has_dead = call('LINDEX', queue, 0), false
    while first and first ~= me and type(first) == 'string' do
        local ends = call('ZSCORE', times, first)
        local left = type(ends) == 'string' and ends - now or 0
        if left > 0 and left_of then
            left = left_of(first, ends, has_dead)
        end
        if left > 0 then
            return first, left
        end
        local gone = call('LPOP', queue)
        if type(gone) ~= 'string' then
            return gone
        end
        call('ZREM', times, first)
        first, has_dead = call('LINDEX', queue, 0), true
    end
    if not first and call('EXISTS', times) == 1 then
        call('DEL', times)
    end
    return first
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
