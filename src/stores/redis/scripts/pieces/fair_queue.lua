-- The queue of a fair lock is a list of waiters, in the order of joining. In a sorted set, the score of a waiter is the
-- time, ms, after which the waiter counts as dead. For a waiter of this library, this time is the time of its last request
-- plus one patience (see fair/acquire.lua) per position. A Redisson client that acquires the lock subtracts one patience
-- from all scores. The fraction of the score encodes the time of the last request (see looks.lua). For a waiter of Redisson,
-- the fraction encodes when its channel was first found without a subscriber.

-- include looks.lua

-- The visitors of this library end with the number of a hold.
local function is_ours(waiter)
    return string.find(waiter, ':%d+:%d+$') ~= nil
end

-- Returns the first living waiter; false if there is none. Removes dead waiters before it. The waiter `me` is never dead.
-- Another waiter is dead if its time has passed or is missing, or if `left_of` (optional) returns at most 0 for it.
-- `left_of` gets a waiter, its time, and whether a dead waiter preceded it. The second result is the result of `left_of`
-- for the first living waiter. If `call` is `pcall`, the first result may be an error.
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

-- Notifies the first waiter that the lock is free. If this waiter is not subscribed, notifies the first subscribed waiter
-- of this library, which queries the lock. May return an error.
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
